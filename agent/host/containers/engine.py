"""The container engine, as a run uses it: images and containers of its own, nobody else's."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import docker.errors
import requests

from agent.core.errors import ContainerError, InterruptedRunError
from agent.host.containers import images
from agent.host.containers.client import EngineClient, connected, engine_errors, remove_container
from agent.host.containers.container import AGENT, Container
from agent.host.containers.creation import (
    IMAGE_LABEL,
    KEEP_LABEL,
    PROXIES_LABEL,
    RUN_LABEL,
    SPEC_LABEL,
    container_name,
    engine_config,
    fingerprint,
)
from agent.host.containers.ending import end_others
from agent.host.containers.failures import engine_error
from agent.host.containers.secret_files import remove_secret_files, write_secret_files
from agent.store.journal import now
from agent.store.results import write_json

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from typing_extensions import Self

    from agent.core.progress import Progress
    from agent.core.secrets import Secrets
    from agent.host.containers.images import Image
    from agent.host.containers.spec import ContainerSpec

_PROBE_LIMIT_S = 60
_NO_SUCH_PROGRAM = 127


class ContainerEngine:
    """An engine that answers.

    Args:
        client: the connection.
        run_id: the run that containers belong to.
        secrets: what is masked in logs, results and messages.
        stop: when set, what takes long is ended, and raises InterruptedRunError.
        step: the key of the step that commands belong to.
        records: the folder for a description of each container; None for none.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        run_id: str,
        secrets: Secrets,
        stop: threading.Event,
        step: str = "",
        records: Path | None = None,
    ) -> None:
        self.client = client
        self.run_id = run_id
        self.secrets = secrets
        self.stop = stop
        self.step = step
        self.records = records
        self._used: list[Container] = []

    def __enter__(self) -> Self:
        """Return the engine, which is already connected."""
        return self

    def __exit__(self, *_: object) -> None:
        """End commands in the background, and the connection; the containers keep running."""
        self.close()

    def close(self) -> None:
        """End commands in the background, and the connection; the containers keep running."""
        while self._used:
            self._used.pop().close()
        self.client.close()

    def image(self, reference: str) -> Image | None:
        """Return an image of the engine with its digests, or None if it does not exist."""
        return images.find_image(self.client, reference)

    def ensure_image(
        self,
        reference: str,
        *,
        when: Literal["missing", "always", "never"] = "missing",
        progress: Progress | None = None,
    ) -> Image:
        """Make sure that an image exists; return it with its digests, for the run's record.

        Args:
            reference: such as ``nvcr.io/nvidia/mlperf/inference:v4.1``; without a tag it is ``latest``.
            when: the policy for pulling.
            progress: receives the number of bytes.

        Raises:
            ContainerError: if it is not available (no such image, unauthorized, no space left, …).
            InterruptedRunError: if the run was stopped.
        """
        found = self.image(reference)
        if when == "always" or (when == "missing" and found is None):
            images.pull(self.client, reference, progress=progress, stop=self.stop)
            found = self.image(reference)
        if found is None:
            raise engine_error(f"the image {reference} does not exist", f"No such image: {reference}")
        return found

    def build_image(
        self,
        folder: Path,
        *,
        tag: str,
        log: Path,
        dockerfile: str = "Dockerfile",
        arguments: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        target: str = "",
        network: str = "",
        use_cache: bool = True,
        progress: Progress | None = None,
    ) -> Image:
        """Build an image from a folder, with the engine's own builder (not BuildKit).

        Args:
            folder: the folder that the Dockerfile may copy from; ``.dockerignore`` counts.
            tag: the image's name.
            log: receives the builder's output, secrets masked.
            dockerfile: the Dockerfile, relative to the folder, or an absolute path.
            arguments: build arguments. The image's history shows them: no secrets.
            labels: labels of the image.
            target: the stage to stop at; empty for the last.
            network: the network of its commands; empty for the engine's default.
            use_cache: True to reuse layers of earlier builds.
            progress: receives the current step.

        Raises:
            ContainerError: if it cannot be built; with the last lines of the output.
            InterruptedRunError: if the run was stopped.
        """
        images.build(
            self.client,
            folder,
            tag=tag,
            dockerfile=dockerfile,
            arguments=arguments or {},
            labels=labels or {},
            target=target,
            network=network,
            use_cache=use_cache,
            log=log,
            secrets=self.secrets,
            progress=progress,
            stop=self.stop,
        )
        return self.ensure_image(tag, when="never")

    def remove_image(self, reference: str) -> None:
        """Remove an image's name, and the image if it has no other name.

        Raises:
            ContainerError: if it does not exist, or a container needs it.
        """
        with engine_errors(f"the image {reference} cannot be removed"):
            self.client.remove_image(reference)

    def ensure_running(self, spec: ContainerSpec) -> Container:
        """Return the run's container for a purpose: the existing one if it matches, else a new one.

        A matching container belongs to this run, and has the same spec and image. It is started if it is
        stopped (for example after a reboot), and processes that a killed agent left in it are ended. A
        container of this run that does not match, or has lost its GPUs, is replaced.

        Raises:
            ContainerError: if it cannot be created or started (it is removed then), if it ends at once, or if
                another owner's container has its name.
            InterruptedRunError: if the run was stopped.
        """
        if self.stop.is_set():
            raise InterruptedRunError(f"the run was stopped before the container {spec.purpose} was made")
        image = self.ensure_image(spec.image, when="never")
        name = container_name(self.run_id, spec.purpose)
        for value in (*spec.secret_environment.values(), *spec.secret_files.values()):
            self.secrets.add(value)
        for value in self.client.container_proxies.values():
            if urlsplit(value).password:
                self.secrets.add(value)
        found = self._inspect(name)
        if found is not None:
            self._refuse_stranger(name, found)
        with engine_errors(f"the container {name} cannot be started"):
            if reused := found is not None and self._matches(found, spec, image):
                write_secret_files(name, spec)
                identifier = str(found["Id"])
                self._start_again(name, identifier, found["State"])
            else:
                if found is not None:
                    remove_container(self.client, found["Id"])
                    remove_secret_files(name)
                identifier = self._made(name, spec, image)
        container = Container(
            self.client,
            identifier=identifier,
            name=name,
            image=image,
            reused=reused,
            run_id=self.run_id,
            step=self.step,
            secrets=self.secrets,
            stop=self.stop,
        )
        self._refuse_ended(container, spec)
        if reused and spec.gpus != "none" and not _has_gpus(container):
            container.remove()
            return self.ensure_running(spec)
        self._used.append(container)
        self._record(container, spec)
        return container

    def remove(self, purpose: str) -> None:
        """Remove the run's container for a purpose, with all that runs in it; nothing if there is none.

        Raises:
            ContainerError: if another owner's container has its name, or the engine does not remove it.
        """
        name = container_name(self.run_id, purpose)
        if (found := self._inspect(name)) is None:
            return
        self._refuse_stranger(name, found)
        with engine_errors(f"the container {name} cannot be removed"):
            remove_container(self.client, found["Id"])
        remove_secret_files(name)

    def _made(self, name: str, spec: ContainerSpec, image: Image) -> str:
        """Create and start a container; a failed one is removed."""
        try:
            folder = write_secret_files(name, spec)
            config = engine_config(spec, run_id=self.run_id, secrets_folder=folder)
            own = {**spec.environment, **spec.secret_environment}
            proxies = [
                f"{key}={value}" for key, value in self.client.container_proxies.items() if key not in own
            ]
            config["Env"] = [*config.get("Env", ()), *proxies]
            config["Labels"] |= {IMAGE_LABEL: image.identifier, PROXIES_LABEL: self._proxies_mark()}
            identifier = str(self.client.create_container_from_config(config, name)["Id"])
        except BaseException:
            remove_secret_files(name)
            raise
        self._start(name, identifier)
        return identifier

    def _proxies_mark(self) -> str:
        """Return a fingerprint of the proxies."""
        told = json.dumps(self.client.container_proxies, sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:32]

    def _start(self, name: str, identifier: str) -> None:
        try:
            self.client.start(identifier)
        except BaseException:
            with suppress(docker.errors.DockerException, requests.RequestException):
                remove_container(self.client, identifier)
            remove_secret_files(name)
            raise

    def _start_again(self, name: str, identifier: str, state: Mapping[str, Any]) -> None:
        if state.get("Paused"):
            self.client.unpause(identifier)
        if state["Running"]:
            end_others(self.client, identifier, AGENT)
        else:
            self._start(name, identifier)

    def _matches(self, found: Mapping[str, Any], spec: ContainerSpec, image: Image) -> bool:
        state, labels = found["State"], found["Config"]["Labels"]
        if state.get("Dead") or state.get("Status") == "removing":
            return False
        # Compare the image by our own label: image stores name a container's image differently.
        wanted = {
            SPEC_LABEL: fingerprint(spec),
            IMAGE_LABEL: image.identifier,
            PROXIES_LABEL: self._proxies_mark(),
        }
        return all(labels.get(label) == value for label, value in wanted.items())

    def _refuse_stranger(self, name: str, found: Mapping[str, Any]) -> None:
        if (found["Config"].get("Labels") or {}).get(RUN_LABEL) != self.run_id:
            raise ContainerError(
                f"a container named {name} exists that this run did not create",
                problem="name_taken",
                remedy=f"see what it is (docker inspect {name}), then rename or remove it",
            )

    def _refuse_ended(self, container: Container, spec: ContainerSpec) -> None:
        """Raise an error for a container whose first process ended at once, and remove it."""
        found = self._inspect(container.name)
        if found is not None and found["State"]["Running"]:
            return
        lines: tuple[str, ...] = ()
        code = "an unknown exit code"
        if found is not None:
            lines, code = container.last_output(), f"exit code {found['State']['ExitCode']}"
            container.remove()
        command = " ".join(spec.command or ("its own command",))
        raise ContainerError(
            f"the container {container.name} ended at once with {code}; it ran {self.secrets.mask(command)}",
            problem="ended_at_once",
            remedy="see its last output; give it a command that keeps running, or another image",
            details=lines,
        )

    def _inspect(self, name: str) -> Mapping[str, Any] | None:
        with engine_errors(f"the container {name} cannot be looked at"):
            try:
                return dict(self.client.inspect_container(name))
            except docker.errors.NotFound:
                return None

    def _record(self, container: Container, spec: ContainerSpec) -> None:
        if self.records is None:
            return
        with engine_errors("the engine does not tell its version"):
            version = self.client.version()
        image = container.image
        self.records.mkdir(exist_ok=True)
        config = engine_config(spec, run_id=self.run_id, secrets_folder=None, masked=True)
        write_json(
            self.records / f"{spec.purpose}.json",
            {
                "name": container.name,
                "id": container.identifier,
                "time": now().isoformat(),
                "reused": container.reused,
                "image": {
                    "reference": image.reference,
                    "id": image.identifier,
                    "digests": list(image.digests),
                    "size_bytes": image.size_bytes,
                    "created": image.created,
                },
                "engine": {"version": version.get("Version"), "api": version.get("ApiVersion")},
                "config": self.secrets.mask_value(config),
            },
        )


def remove_containers(
    run_id: str, *, kept_too: bool = False, name: str = "", address: str | None = None
) -> list[str]:
    """Remove the containers of a run, and their secret files; return their names.

    Args:
        run_id: the run.
        kept_too: True to remove also those marked as kept.
        name: the name of the only container to remove; empty for all of the run.
        address: the engine's; see ``connect``.

    Raises:
        ContainerError: if the engine does not answer, or does not remove one.
    """
    client = connected(address)
    removed = []
    with engine_errors(f"the containers of run {run_id} cannot be removed"):
        for found in client.containers(all=True, filters={"label": f"{RUN_LABEL}={run_id}"}):
            if not kept_too and (found.get("Labels") or {}).get(KEEP_LABEL):
                continue
            own = str(found["Names"][0]).lstrip("/")
            if name and own != name:
                continue
            remove_container(client, found["Id"])
            remove_secret_files(own)
            removed.append(own)
    client.close()
    return removed


def _has_gpus(container: Container) -> bool:
    """Return True if a container that was given GPUs still has them.

    systemd removes them if it reloads its units, because it does not know that runc granted them
    (NVIDIA Container Toolkit, troubleshooting, "Containers losing access to GPUs"). A container without
    nvidia-smi cannot be checked, and counts as good.
    """
    try:
        told = container.run(
            ["nvidia-smi", "-L"], log=Path(os.devnull), timeout_s=_PROBE_LIMIT_S, user="0", check=False
        )
    except ContainerError as error:
        if error.problem != "no_such_program":
            raise
        return True
    return told.exit_code == _NO_SUCH_PROGRAM or (told.exit_code == 0 and "GPU" in told.stdout)
