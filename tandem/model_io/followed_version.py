"""Which version of the model a service asks for, followed while it runs."""

from contextlib import suppress
from pathlib import Path

from tandem.contract.model_description import ModelDescription, ProbabilityCalibration
from tandem.errors import ModelUnavailable
from tandem.model_io.description import describe_model
from tandem.model_io.manifest import JOINT_ENCODER, Manifest, read_manifest
from tandem.model_io.model_version import serving


class FollowedVersion:
    """The version that a model repository said was serving when it was last looked at.

    Every inference names its version, so one that this service has not come to yet is never asked
    for, whatever Triton has loaded.
    """

    def __init__(self, repository: Path, manifest: Manifest) -> None:
        """Looks at once; raises ValueError for files that do not say what serves."""
        self._repository = repository
        self._manifest = manifest
        self._descriptions: dict[int, ModelDescription] = {}
        self._number = serving(repository).version
        self.describe(self._number)

    def number(self) -> int:
        """Returns it."""
        return self._number

    def look(self) -> None:
        """Looks again. What cannot be read is not followed: the version before goes on serving.

        Raises ModelUnavailable where the repository holds another model by now. A Triton that is
        started again would load that one, and its answers would go out as this one's.
        """
        with suppress(OSError, ValueError):
            held = read_manifest(self._repository).fingerprint
            if held != self._manifest.fingerprint:
                raise ModelUnavailable(
                    model=JOINT_ENCODER,
                    why=f"{self._repository} holds model {held[:12]} by now, and this service was "
                    f"started with {self._manifest.fingerprint[:12]}; restart Triton and all "
                    "services",
                )
            number = serving(self._repository).version
            self.describe(number)
            self._number = number

    def describe(self, number: int | None = None) -> ModelDescription:
        """Returns what a version is, unless told the serving one; errors as describe_model.

        Read once: a version's folder does not change.
        """
        number = self._number if number is None else number
        if number not in self._descriptions:
            self._descriptions[number] = describe_model(self._repository, self._manifest, number)
        return self._descriptions[number]

    def calibration(self, number: int) -> ProbabilityCalibration | None:
        """Returns what was measured of a version; raises ModelUnavailable where there is none."""
        try:
            return self.describe(number).probability_calibration
        except (OSError, ValueError) as error:
            raise ModelUnavailable(
                model=JOINT_ENCODER, why=f"version {number} is not to be had here"
            ) from error
