"""Declares the RERANK_… settings."""

from dataclasses import dataclass

from tandem.chassis.settings import ANY_NUMBER, AT_LEAST_0, AT_LEAST_1, SettingsError, setting
from tandem.contract.model_description import ProbabilityCalibration
from tandem.local.item_store.item_store import DEFAULT_MAP_BYTES
from tandem.remote.index_engine import EngineSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankSettings(EngineSettings):
    """Configures the cross-encoder, the shard's item store, the cache and the limits."""

    address: str = setting("host:port to listen on", default="127.0.0.1:7430")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7530)
    triton_address: str = setting(
        "host:port of Triton's gRPC endpoint, or ipv4:host:port,host:port of several; required "
        "unless RERANK_REMOTE_URL is set",
        default="",
    )
    triton_tls: bool = setting(
        "whether to call Triton with the certificates of TLS_…",
        default=False,
    )
    model_repository: str = setting("folder with the exported model's manifest")
    store_path: str = setting(
        "folder of the shard's item store, which index_svc writes; required with the engine lmdb",
        default="",
    )
    store_map_bytes: int = setting(
        "bytes of the store to map at first; a larger store maps more",
        default=DEFAULT_MAP_BYTES,
    )
    allow_any_file_system: bool = setting(
        "whether to open a store on a network file system, where acknowledged writes can be lost",
        default=False,
    )
    score_cache_bytes: int = setting(
        "size of the cache of match logits, in bytes; 0 turns it off",
        default=64 << 20,
    )
    token_cache_bytes: int = setting(
        "size of the cache of image tokens, for a model that recomputes them from stored pictures, "
        "or of the pictures as a remote model is sent them, in bytes; 0 turns it off",
        default=256 << 20,
        within=AT_LEAST_0,
    )
    max_inflight_count: int = setting("calls in flight; more are refused", default=128)
    thread_count: int = setting("threads that read the item store", default=2)
    heif_enabled: bool = setting(
        "whether to read stored HEIC and AVIF images too, where tokens are recomputed or a remote "
        "model reads images; needs the extra heif",
        default=False,
    )
    default_timeout_seconds: float = setting("deadline of calls that set none", default=10.0)
    remote_url: str = setting(
        "address of a remote cross-encoder's API, for example https://rerank.example/v1/rerank; "
        "empty uses the model in Triton",
        default="",
    )
    remote_model: str = setting("name of the remote model, as its API knows it", default="")
    remote_shape: str = setting("the API: vllm-rerank, vllm-score or jina", default="vllm-rerank")
    remote_scores: str = setting(
        "what its scores are: probability (0 to 1) or logit", default="probability"
    )
    remote_key_file: str = setting(
        "file with the key of the API, sent as a bearer token", default=""
    )
    remote_authority_file: str = setting(
        "PEM file of the authority of the API's certificate; empty trusts the system's",
        default="",
    )
    remote_picture_queries: bool = setting(
        "whether the remote model reads images as queries; without, those are not reranked",
        default=True,
    )
    remote_batch_count: int = setting("most documents in one request to the API", default=16)
    remote_inflight_count: int = setting("requests to the API at once", default=4)
    remote_request_seconds: float = setting("longest wait for one answer of the API", default=10.0)
    remote_connect_seconds: float = setting("longest wait for a connection to the API", default=2.0)
    remote_picture_pixels: int = setting(
        "longer side to which large images are scaled down for the API",
        default=1024,
        within=AT_LEAST_1,
    )
    remote_tolerance_share: float = setting(
        "by how much a pair's probability may differ between two batches", default=0.05
    )
    remote_probability_scale: float = setting(
        "match probability is sigmoid(scale * logit + bias), as you measured it; at 0 scores are "
        "not calibrated, and probabilities are withheld",
        default=0.0,
        within=AT_LEAST_0,
    )
    remote_probability_bias: float = setting(
        "the bias, which needs a scale", default=0.0, within=ANY_NUMBER
    )

    def __post_init__(self) -> None:
        """Raises SettingsError unless a cross-encoder and a store are named."""
        self.check_store("RERANK_", self.store_path)
        if not (self.remote_url or self.triton_address):
            raise SettingsError("RERANK_TRITON_ADDRESS is not set: host:port of Triton's endpoint")
        if self.remote_probability_bias and not self.remote_probability_scale:
            raise SettingsError(
                "RERANK_REMOTE_PROBABILITY_BIAS needs RERANK_REMOTE_PROBABILITY_SCALE"
            )

    @property
    def remote_calibration(self) -> ProbabilityCalibration | None:
        """Returns how a remote model's logits become probabilities; None if they do not."""
        if not self.remote_probability_scale:
            return None
        return ProbabilityCalibration(
            scale=self.remote_probability_scale, bias=self.remote_probability_bias
        )
