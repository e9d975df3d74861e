"""The wire contract's generated stubs; `make protos` writes the other files of this folder."""
