"""The HTTP server for editors: what api.md says, on top of `lookahead_edit.editor`."""

from lookahead_edit.server.app import create_app
from lookahead_edit.server.run import serve

__all__ = ["create_app", "serve"]
