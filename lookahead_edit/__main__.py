"""`python -m lookahead_edit` is the command `lookahead-edit`."""

from __future__ import annotations

from lookahead_edit.cli_start import main

if __name__ == "__main__":
    main()
