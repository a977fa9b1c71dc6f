"""`python -m tf_amp_rewriter`: the command line."""

from tf_amp_rewriter import cli

if __name__ == "__main__":
    raise SystemExit(cli.main())
