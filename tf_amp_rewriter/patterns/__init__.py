"""Groups of nodes that are one computation, and how the pass treats each node of them."""
