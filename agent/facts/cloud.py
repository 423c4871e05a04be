"""The cloud that the host is in, and its size there, as the cloud's metadata service says.

The firmware tells whether there is such a service. No other host is asked, so that a host outside a cloud
sends no request to the link-local address and does not wait for an answer.
"""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_URL_VARIABLE = "VCAGENT_CLOUD_METADATA_URL"
"""Variable with the service's address; ``off`` for a host that must not ask it."""

_ADDRESS = "http://169.254.169.254"
_DMI = "/sys/class/dmi/id"
_AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
"""learn.microsoft.com, "Azure Instance Metadata Service": the chassis asset tag of every Azure VM."""
_TIMEOUT_S = 2.0
_LONGEST_ANSWER_BYTES = 65_536


@dataclass(frozen=True)
class Cloud:
    """Where the host is.

    Args:
        provider: ``azure``, ``aws`` or ``gcp``.
        size: the size or type of the virtual machine, such as ``Standard_ND96isr_H100_v5``; None if the
            service does not answer.
        region: where it is, likewise.
    """

    provider: str
    size: str | None = None
    region: str | None = None


def provider_of(vendor: str, product: str, asset_tag: str) -> str | None:
    """Return the cloud that the firmware's texts name; None outside a cloud."""
    if asset_tag.strip() == _AZURE_ASSET_TAG:
        return "azure"
    if vendor.startswith("Amazon EC2") or product.startswith("Amazon EC2"):
        return "aws"
    return "gcp" if product.startswith("Google Compute Engine") else None


def ask(provider: str, address: str = _ADDRESS) -> Cloud:
    """Ask the metadata service of a cloud.

    Args:
        provider: the cloud.
        address: the service's address.
    """
    try:
        if provider == "azure":
            answer = _get(f"{address}/metadata/instance/compute?api-version=2021-02-01", Metadata="true")
            compute = json.loads(answer)
            return Cloud(provider, compute.get("vmSize") or None, compute.get("location") or None)
        if provider == "aws":
            seconds = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
            token = {"X-aws-ec2-metadata-token": _get(f"{address}/latest/api/token", "PUT", **seconds)}
            size, region = (
                _get(f"{address}/latest/meta-data/{name}", **token)
                for name in ("instance-type", "placement/region")
            )
            return Cloud(provider, size or None, region or None)
        flavor = {"Metadata-Flavor": "Google"}
        size, zone = (
            _get(f"{address}/computeMetadata/v1/instance/{name}", **flavor).rpartition("/")[2]
            for name in ("machine-type", "zone")
        )
        return Cloud(provider, size or None, zone.rpartition("-")[0] or None)
    except (OSError, ValueError, AttributeError):
        return Cloud(provider)


def _get(url: str, method: str = "GET", **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 - http, by whoever set it
    # Never through a proxy: the address means another host there.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read(_LONGEST_ANSWER_BYTES)
    return content.decode("utf-8", "replace").strip()


def read_cloud(host: Host, environment: Mapping[str, str]) -> Cloud | None:
    """Return the host's cloud; None outside a cloud.

    Args:
        host: the host.
        environment: variables that may name the service's address.
    """
    texts = [
        host.text(f"{_DMI}/{name}") or "" for name in ("sys_vendor", "product_name", "chassis_asset_tag")
    ]
    provider = provider_of(*texts)
    address = environment.get(METADATA_URL_VARIABLE, _ADDRESS)
    if provider is None or address == "off":
        return Cloud(provider) if provider else None
    return ask(provider, address.rstrip("/"))


CLOUD: Fact[Cloud | None] = Fact(
    "cloud", f"{_DMI}, the cloud's metadata service", lambda host: read_cloud(host, os.environ)
)
