"""Ops of other libraries that models are often served with: all stay float32.

TensorFlow has no definition of them unless their library is loaded, and no library says what its
kernels do in low precision. They are here so that a report says what they are, and that nobody
takes them for forgotten. Only ops that read or give float32 are listed.
Source of all names: the `REGISTER_OP` of the library named, or where it makes the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tf_amp_rewriter.ops.rows import Category, OpRow

_SEARCH: Final = "it compares distances between vectors"
_SAMPLES: Final = "it reads coordinates, and interpolates in the type of its input"
_IMAGE: Final = "image processing stays exact"
_SUMS: Final = "it sums in the type of its input, or does not say in which"
_TEXT: Final = "its definition allows float32 only, or its scores decide on tokens"
_TREES: Final = "it compares features with thresholds, and gives float32"
_TABLE: Final = "values must agree with the type of the table, which is outside of the graph"
_MOVES: Final = "the table that it serves is float32"
_ENGINE: Final = "it runs a compiled program of its own, whose types are fixed"
_BOXES: Final = "it decodes and ranks boxes, and is float32 by definition"


def _keep(names: str, source: str, note: str) -> Iterable[OpRow]:
    """One row for each of the ops named, parted by spaces."""
    return (OpRow(op, Category.KEEP, source, note=note) for op in names.split())


def _embeddings() -> Iterable[OpRow]:
    """TensorFlow Recommenders Addons: two spellings of its names, three kinds of tables."""
    source = "TensorFlow Recommenders Addons"
    for prefix in ("TFRA>", "Tfra"):
        for table in ("CuckooHashTable", "HkvHashTable", "RedisTable"):
            for what in ("Accum", "Export", "Find", "FindWithExists", "Import", "Insert"):
                yield OpRow(f"{prefix}{table}{what}", Category.KEEP, source, note=_TABLE)
            yield OpRow(f"{prefix}{table}OfTensors", Category.KEEP, source, note=_TABLE)
        for op in ("DynamicPartition", "DynamicStitch", "DynamicStitchFast"):
            yield OpRow(f"{prefix}{op}", Category.KEEP, source, note=_MOVES)
        yield OpRow(f"{prefix}ParallelDynamicStitch", Category.KEEP, source, note=_MOVES)
        for op in ("SparseSegmentSum", "SparseSegmentSumWithNumSegments"):
            yield OpRow(f"{prefix}{op}", Category.KEEP, source, note=_SUMS)
    yield OpRow("TfraSparseFillEmptyRows", Category.KEEP, source, note=_MOVES)


ROWS: Final[tuple[OpRow, ...]] = (
    # TensorFlow Addons, and what tf.contrib called some of it.
    *_keep(
        "Addons>AdjustHsvInYiq Addons>EuclideanDistanceTransform Addons>ImageConnectedComponents"
        " AdjustHsvInYiq",
        "TensorFlow Addons",
        _IMAGE,
    ),
    *_keep(
        "Addons>CorrelationCost Addons>CorrelationCostGrad Addons>EmbeddingBag"
        " Addons>EmbeddingBagGrad",
        "TensorFlow Addons",
        _SUMS,
    ),
    *_keep("Addons>Resampler Addons>ResamplerGrad Resampler", "TensorFlow Addons", _SAMPLES),
    *_keep("Addons>SkipGramGenerateCandidates", "TensorFlow Addons", _TEXT),
    # TensorFlow Text and SentencePiece.
    *_keep(
        "ConstrainedSequence MaxSpanningTree RougeL SentencepieceTokenizeOp"
        " SentencepieceTokenizeWithOffsetsOp TFText>FastSentencepieceTokenize TokenizerFromLogits",
        "TensorFlow Text",
        _TEXT,
    ),
    # Retrieval with TensorFlow Recommenders.
    *_keep(
        "Addons>ScannCreateSearcher Addons>ScannSearch Addons>ScannSearchBatched"
        " Addons>TensorsToScann",
        "ScaNN",
        _SEARCH,
    ),
    *_embeddings(),
    # TensorFlow Decision Forests.
    *_keep(
        "SimpleMLInferenceOp SimpleMLInferenceOpWithHandle SimpleMLInferenceLeafIndexOpWithHandle",
        "TensorFlow Decision Forests",
        _TREES,
    ),
    # Compiled parts of a graph.
    *_keep("TRTEngineOp", "TF-TRT", _ENGINE),
    *_keep("NeuronOp", "AWS Neuron", _ENGINE),
    # The object detection API, for TensorFlow Lite.
    *_keep("TFLite_Detection_PostProcess", "TF object detection API", _BOXES),
)
