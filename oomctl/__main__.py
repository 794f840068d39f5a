"""``python -m oomctl``."""

from oomctl.cli.main import run

if __name__ == "__main__":
    run()
