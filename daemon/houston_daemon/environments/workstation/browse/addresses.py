"""Which addresses of the network a page may come from. Knows numbers only, no names and no agent.

Refused is what leads to this machine, its networks or a cloud's metadata, and every form of IPv6
that carries an IPv4 address, through which the same could be reached in disguise.
"""

import ipaddress
import re

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_METADATA = {
    ipaddress.ip_address("168.63.129.16"),  # Azure; the others lie in networks that are private
}
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # IETF assignments, among them a metadata service
            "::/96",  # IPv4-compatible
            "::ffff:0:0/96",  # IPv4-mapped
            "::ffff:0:0:0/96",  # IPv4-translated
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/48",  # NAT64 of a network's own
            "2001::/32",  # Teredo
            "2002::/16",  # 6to4
            "fec0::/10",  # site-local
        ),
    )
)


def refused(address: str) -> bool:
    """Whether a numeric address may not be reached; also for what is no address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return True
    if not found.is_global or found.is_multicast or found in _METADATA:
        return True
    return any(found in network for network in _NEVER if network.version == found.version)


def oddly_spelled(host: str) -> bool:
    """Whether a host is an IPv4 address in another form than four decimal numbers.

    Such as 2130706433, 0x7f.1 or 0177.0.0.1: resolvers take them (inet_aton), readers do not see
    them for what they are.
    """
    last = host.rstrip(".").rsplit(".", 1)[-1]
    if not _NUMBER.fullmatch(last):
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False
