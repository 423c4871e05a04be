"""Checks whether this host is fit to run: small checks over facts, each with its remedy; changes nothing."""

from agent.doctor.amd_gpus import check_amd_gpus
from agent.doctor.check import Check, Status
from agent.doctor.gpus import check_gpus
from agent.doctor.host import check_host, writable
from agent.doctor.profile import agree, check_plan, check_secrets, check_servers, for_profile, unset_secrets

__all__ = [
    "Check",
    "Status",
    "agree",
    "check_amd_gpus",
    "check_gpus",
    "check_host",
    "check_plan",
    "check_secrets",
    "check_servers",
    "for_profile",
    "unset_secrets",
    "writable",
]
