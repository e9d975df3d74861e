"""Converts contents to tensors, keeps the model repository, and calls Triton.

    preprocessing               how a model's contents become tensors, as data
    visible_text, text          a text to token ids, as in training
    served_texts                the ids that a served model embeds, and those that it pairs
    tokenizer_file, special_tokens  a tokenizer's file, checked
    image_file, image           an image file to pixels, within limits
    picture_fit                 letterbox, squash and crop
    buckets, pair_window        pads and groups the rows of a call; limits pairs in Triton
    manifest, model_repository  what an exported model is; the folder that Triton serves
    config_pbtxt, precision     each model's configuration; number formats
    calibration                 match probabilities and the adaptive-depth rule of a model
    model_version, followed_version  versions of a model; the one that a service requests
    version_check, swap_attendance  tests a version before it serves; who swaps, and progress
    triton_client, triton_fault, priority  inference calls, their errors and their order
    served_functions            the three functions of a model, and its tensors' roles
    served_model, canary        the model as arrays in and out; whether it answers correctly
    triton_install, triton_server, triton_versions  a local Triton, and what it has loaded
    model_servicer, description describes the model to callers
    triton_metrics, cost_metrics, served_metrics  what Prometheus scrapes
    json_object, whole_file     reads checked JSON, and writes files atomically
    field_settings              reads field=value by the types of a dataclass

A model repository holds one model of ours, identified by the fingerprint in its manifest.
"""
