"""Describes the model of a repository, and follows which version of it a service requests."""

from contextlib import suppress
from pathlib import Path

from tandem.contract.model_description import ModelDescription, ProbabilityCalibration
from tandem.errors import ModelUnavailable
from tandem.model_io.pictures.image import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS
from tandem.model_io.repository.calibration import read_calibration
from tandem.model_io.repository.manifest import Manifest, manifest_file, read_manifest
from tandem.model_io.repository.model_version import (
    FIRST_VERSION,
    ModelVersion,
    serving,
    version_calibration,
    version_folder,
)
from tandem.model_io.texts.text import MAX_TEXT_BYTES


class FollowedVersion:
    """Holds the version that served when the model repository was last read.

    Every inference names its version, so a service never uses one that it has not read yet,
    whatever Triton has loaded.
    """

    def __init__(self, repository: Path, manifest: Manifest) -> None:
        """Reads the serving version; raises ValueError for invalid files."""
        self._repository = repository
        self._manifest = manifest
        self._descriptions: dict[int, ModelDescription] = {}
        self._read_file: tuple[int, ...] = ()
        self._read_fingerprint = ""
        self._number = serving(repository).version
        self.describe(self._number)

    def number(self) -> int:
        return self._number

    def look(self) -> None:
        """Reads the serving version again; if that fails, the previous one continues to serve.

        Raises ModelUnavailable if the repository now holds another model. A restarted Triton would
        load that one, and its outputs would be taken for this model's.
        """
        with suppress(OSError, ValueError):
            held = self._held_fingerprint()
            if held != self._manifest.fingerprint:
                raise ModelUnavailable(
                    model=self._manifest.functions.embed_text,
                    why=f"{self._repository} now holds model {held[:12]}, and this service was "
                    f"started with {self._manifest.fingerprint[:12]}; restart Triton and all "
                    "services",
                )
            number = serving(self._repository).version
            self.describe(number)
            self._number = number

    def _held_fingerprint(self) -> str:
        """Returns the fingerprint in the repository; errors as read_manifest.

        Reading and checking a manifest takes half a millisecond, and a service looks every second.
        """
        stat = manifest_file(self._repository).stat()
        file = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        if file != self._read_file:
            self._read_fingerprint = read_manifest(self._repository).fingerprint
            self._read_file = file
        return self._read_fingerprint

    def describe(self, number: int | None = None) -> ModelDescription:
        """Returns the description of a version, by default the serving one.

        It is read once, because a version's folder does not change. Errors as describe_model.
        """
        number = self._number if number is None else number
        if number not in self._descriptions:
            self._descriptions[number] = describe_model(self._repository, self._manifest, number)
        return self._descriptions[number]

    def calibration(self, number: int) -> ProbabilityCalibration | None:
        """Returns a version's calibration; raises ModelUnavailable if the version is missing."""
        try:
            return self.describe(number).probability_calibration
        except (OSError, ValueError) as error:
            raise ModelUnavailable(
                model=self._manifest.functions.embed_text,
                why=f"version {number} is not available here",
            ) from error


def describe_model(
    repository: Path, manifest: Manifest, version: int = FIRST_VERSION
) -> ModelDescription:
    """Returns the name, limits and calibration of a version of the model.

    Errors as read_calibration, and as ModelVersion.read.
    """
    if version == FIRST_VERSION:
        precision = manifest.precision
        calibration = read_calibration(repository, manifest.fingerprint)
    else:
        precision = ModelVersion.read(version_folder(repository, version)).precision
        calibration = version_calibration(repository, version)
    return ModelDescription(
        fingerprint=manifest.fingerprint,
        family=manifest.family,
        precision=precision,
        embedding_dimension=manifest.embedding_dim,
        max_text_token_count=manifest.text.max_tokens,
        max_text_bytes=MAX_TEXT_BYTES,
        max_image_bytes=MAX_IMAGE_BYTES,
        max_image_pixel_count=MAX_IMAGE_PIXELS,
        probability_calibration=calibration.probability if calibration else None,
        adaptive_depth_rule=calibration.adaptive_depth if calibration else None,
        text_similarity_calibration=calibration.text_similarity if calibration else None,
        version=version,
        region_feature_width=manifest.regions.feature_width if manifest.regions else 0,
        max_region_count=manifest.regions.max_regions if manifest.regions else 0,
    )
