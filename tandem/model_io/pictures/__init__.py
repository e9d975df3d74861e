"""Turns image files and a detector's regions into a model's arrays, within limits.

- image_rules: how a picture and regions become tensors, as data
- image: an image file to pixels; picture_fit: letterbox, squash and crop; orientation: upright
- image_file: a file's parts, before it is decoded; xmp, other_formats: what it finds in them
- jpeg_frame, unended_jpeg: a JPEG's memory, and its end
- heif_file, heif_reader, heif_process: HEIC and AVIF, each decoded in a process of its own
- region_vectors: a detector's regions to vectors
"""
