"""Messages of a container engine about failures, with remedies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.core.errors import ContainerError


@dataclass(frozen=True)
class Failure:
    """A known failure.

    Args:
        problem: its name, for programs.
        pattern: a regular expression for the engine's message; the first match counts.
        remedy: the remedy; ``{0}`` is the pattern's first group, or "it" if that is empty.
    """

    problem: str
    pattern: str
    remedy: str


FAILURES = (
    Failure(
        "old_client",
        r"client version (\S+) is too old. Minimum supported API version is \S+",
        "the engine (29 and later) does not answer clients of API {0}: update the client (docker-ce-cli), or "
        "let dockerd take it: DOCKER_MIN_API_VERSION in a drop-in of docker.service",
    ),
    Failure(
        "old_engine",
        r"client version \S+ is too new. Maximum supported API version is (\S+)",
        "the engine is older than the client: update it, or call with DOCKER_API_VERSION={0}",
    ),
    Failure(
        "proxy_of_the_engine",
        r"proxyconnect tcp: (?:dial tcp:? )?(.+)",
        "the engine cannot reach its proxy ({0}): correct proxies in /etc/docker/daemon.json or HTTP_PROXY "
        "of its service, and restart Docker",
    ),
    Failure(
        "cdi_vendor",
        r"failed to discover GPU vendor from CDI|no known GPU vendor found",
        "install nvidia-container-toolkit, then: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    Failure(
        "no_gpu_driver",
        r"could not select device driver \S* with capabilities: \[\[gpu\]\]"
        r"|nvidia-container-runtime-hook: no such file",
        "the engine finds no nvidia-container-runtime-hook: install nvidia-container-toolkit, restart Docker",
    ),
    Failure(
        "unknown_runtime",
        r"(?:unknown or invalid runtime name|Unknown runtime specified|unknown runtime):? (\S+)",
        "the engine does not know the runtime {0}: name it in /etc/docker/daemon.json, restart Docker",
    ),
    Failure(
        "cdi_device",
        r"unresolvable CDI devices (\S+)",
        "no CDI specification has {0}: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    Failure(
        "cdi_stale",
        r"CDI device injection failed: .*?failed to stat (?:CDI host device )?[\"\\]*([^\s\"\\:]+)",
        "the CDI specification names {0}, which is missing: generate it again (nvidia-ctk cdi generate)",
    ),
    Failure(
        "cdi_off",
        r"could not select device driver \S*cdi|CDI support is not enabled",
        'switch CDI on in /etc/docker/daemon.json ("features": {{"cdi": true}}), then restart Docker'
        " (25 or newer)",
    ),
    Failure(
        "driver_mismatch",
        r"[Dd]river/library version mismatch",
        "the loaded kernel module is older than the driver's libraries: reboot the host",
    ),
    Failure(
        "driver_not_loaded",
        r"[Dd]river not loaded|(?:nvidia-smi|NVIDIA-SMI) has failed because it couldn't communicate",
        "load NVIDIA's kernel module: a NvidiaCudaInstallation before this element, or modprobe nvidia",
    ),
    Failure(
        "gpus_taken",
        r"Failed to initialize NVML: Unknown Error",
        "systemd has taken the GPUs from the container (daemon-reload): restart it; CDI prevents this",
    ),
    Failure(
        "no_driver_library",
        r"load library failed: (\S+?):",
        "the driver's library {0} is not on the host: install the driver with its libraries",
    ),
    Failure(
        "unknown_gpu",
        r"nvidia-container-cli: device error: (.+?): unknown device",
        "the host has no GPU {0}: see nvidia-smi -L",
    ),
    Failure(
        "rate_limit",
        r"toomanyrequests|rate limit",
        "the registry limits anonymous downloads: docker login, or an image of a registry of your own",
    ),
    Failure(
        "no_disk_space",
        r"no space left on device",
        "free some space where Docker keeps its images: docker system df",
    ),
    Failure(
        "rlimit",
        r"error setting rlimit[s]? (?:type )?\S*.*operation not permitted|error setting rlimit",
        "this engine may not raise limits (no CAP_SYS_RESOURCE): lower ulimits, or give ulimits: {{}}",
    ),
    Failure(
        "port_taken",
        r"(?:Bind for )?(\S*:\d+)(?: failed)?: (?:port is already allocated|bind: address already in use)",
        "another program or container has {0}: stop it, or choose another port",
    ),
    Failure(
        "name_taken",
        r"container name \"?/?(\S+?)\"? is already in use",
        "another container is named {0}: rename or remove it",
    ),
    Failure(
        "no_mount_source",
        r"bind source path does not exist: (\S+)",
        "make {0} on the host, or correct the mount",
    ),
    Failure(
        "no_such_image",
        r"pull access denied|manifest for \S+ not found|manifest unknown|repository \S+ not found"
        r"|No such image|name unknown|no matching manifest",
        "there is no such image, or it needs docker login: correct its name",
    ),
    Failure(
        "unauthorized",
        r"unauthorized|authentication required|no basic auth credentials|denied: requested access"
        r"|access forbidden|403 Forbidden|invalid username/password",
        "log in to the registry as this user: docker login (nvcr.io takes $oauthtoken and an NGC key)",
    ),
    Failure(
        "no_such_network",
        r"network (\S+) not found",
        "docker network create {0}, or correct the network's name",
    ),
    Failure(
        "no_such_container",
        r"[Nn]o such container|No such exec instance|is not running|container \S+ is paused"
        r"|marked for removal|cannot exec in a (?:stopped|paused)",
        "somebody removed or stopped it, or it ended by itself: vcagent resume creates it again",
    ),
    Failure(
        "no_such_user",
        r"unable to find (?:user|group) ([^:\s]+)|no matching entries in (?:passwd|group) file",
        "the image has no user or group {0}: give its number (uid:gid)",
    ),
    Failure(
        "no_init",
        r"exec: \"?docker-init\"?: ",
        "the engine's host has no docker-init: install tini, or leave init out",
    ),
    Failure(
        "no_such_program",
        r"exec: \"?(\S+?)\"?: (?:.*not found|.*no such file|permission denied|stat )"
        r"|(?:No command specified|no command specified)",
        "the image has no {0}: correct the command, or take another image",
    ),
    Failure(
        "no_workdir",
        r"chdir to cwd \(\"(\S+?)\"\)",
        "the image has no folder {0}: correct workdir, or mount it",
    ),
    Failure(
        "no_buildx",
        r"buildx component is missing|'buildx' is not a docker command|unknown flag: --build-context"
        r"|unknown docker command: \"buildx",
        "install Docker's buildx: docker-buildx-plugin (docker-buildx where Docker is docker.io)",
    ),
    Failure(
        "buildkit",
        r"the --\S+ option requires BuildKit|requires BuildKit|dockerfile parse error.*unknown flag: mount",
        "the engine's own builder cannot do it: docker buildx build the image, then name it",
    ),
    Failure(
        "no_credential_program",
        r"docker-credential-\S+|[Cc]redentials store error",
        "~/.docker/config.json names a credential store that is missing: install it, or take it out",
    ),
    Failure(
        "bad_reference",
        r"invalid reference format|InvalidRepository|is not a valid repository/tag",
        "correct the image's name: registry/repository:tag, in lower case",
    ),
    Failure(
        "permission",
        r"permission denied while trying to connect|PermissionError\(",
        "run vcagent as root, or add this user to the group docker, then: sg docker -c 'vcagent …'",
    ),
    Failure(
        "no_engine",
        r"FileNotFoundError\(",
        "install Docker (DockerInstallation), or name the engine's address in DOCKER_HOST",
    ),
    Failure(
        "engine_down",
        r"Is the docker daemon running|Cannot connect to the Docker daemon|Connection refused"
        r"|ConnectionRefusedError|Connection aborted|Remote end closed|RemoteDisconnected|Read timed out",
        "start the engine: systemctl start docker; see journalctl -u docker",
    ),
    Failure(
        "registry_not_reached",
        r"Temporary failure in name|no such host|timeout|is unreachable|connection refused|dial tcp"
        r"|TLS handshake|x509:|server gave HTTP response to HTTPS",
        "the registry is not reached: set the proxy of Docker's service, use a mirror, or docker load it",
    ),
    Failure(
        "not_permitted",
        r"operation not permitted",
        "the engine may do less than the container wants: leave out privileged, cap_add, ulimits",
    ),
)
"""Messages of engines, registries and NVIDIA's runtime, with remedies; more specific ones first."""


def known_failure(message: str) -> tuple[str, str] | None:
    """Return the problem's name and the remedy for a message of an engine or the docker command, or None."""
    for failure in FAILURES:
        if match := re.search(failure.pattern, message):
            return failure.problem, failure.remedy.format(*(group or "it" for group in match.groups()))
    return None


def engine_error(what: str, message: str) -> ContainerError:
    """Return an engine's message as an error with its remedy.

    Args:
        what: the failed operation, such as ``the container vcagent-… cannot be started``.
        message: the message of the engine or the connection.
    """
    said = " ".join(message.split()) or "nothing was said"
    if known := known_failure(said):
        problem, remedy = known
        return ContainerError(f"{what}: {said}", problem=problem, remedy=remedy)
    return ContainerError(f"{what}: {said}", remedy="see journalctl -u docker")
