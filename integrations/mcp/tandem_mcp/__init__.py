"""An MCP server over Tandem, with the tools search_images, search_texts and describe_index."""

from tandem_mcp.server import ServedIndexes, make_server

__all__ = ["ServedIndexes", "make_server"]
