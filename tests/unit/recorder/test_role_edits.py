"""Roles that are edited count from the next message on."""

import os
import pwd

import pytest

from houston_daemon.recorder.identity_and_roles import RoleBook
from houston_shared.config_sections import RoleSettings
from houston_shared.errors import ConfigurationError


def test_edited_roles_take_the_place_of_the_old_ones() -> None:
    other = next(one for one in pwd.getpwall() if one.pw_uid not in (0, os.geteuid()))
    asked = (other.pw_uid, other.pw_name, [other.pw_gid])
    book = RoleBook(RoleSettings(operators=(other.pw_name,)), "")
    assert book.role_of(*asked) == "operator"
    book.use_roles(RoleSettings(viewers=(other.pw_name,)))
    assert book.role_of(*asked) == "viewer"
    with pytest.raises(ConfigurationError, match="no-such-user"):
        book.use_roles(RoleSettings(operators=("no-such-user", other.pw_name)))
    assert book.role_of(*asked) == "viewer", "what is refused changes nothing"
    book.use_roles(RoleSettings())
    assert book.role_of(*asked) is None
