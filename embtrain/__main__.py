"""Makes `python -m embtrain` run the command `embtrain`."""

from embtrain.cli import main

if __name__ == "__main__":
    main()
