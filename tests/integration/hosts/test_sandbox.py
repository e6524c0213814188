"""What a sandboxed process can reach, and what is left of it afterwards."""

import asyncio
import contextlib
import os
import pwd
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from houston_daemon.hosts import process_table
from houston_daemon.hosts.guard import control_groups
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.sandbox import process_enclosure, sandbox_profile
from houston_shared.errors import HoustonError
from tests.support import small_image

from .conftest import MakeHost, finish, until


async def _says(host: LocalHost, script: str, **settings: object) -> tuple[int | None, str]:
    done = await host.spawn(["bash", "-c", script], seconds=30, **settings)
    return done.exit_code, (done.stdout + done.stderr).decode()


HIDDEN = {
    "another rollout": "cat {root}/rollouts/other/workspace/secret",
    "the shadow repository": "ls {root}/rollouts/r1/shadow",
    "the terminals' folder": "ls {root}/rollouts/r1/terminals",
    "the home": "cat {home}/secret",
    "ssh keys": "ls ~/.ssh /root/.ssh",
    "the password hashes": "cat /etc/shadow",
    "a process outside": "test -d /proc/{pid} && grep -q pytest /proc/{pid}/cmdline",
    "the environment of the daemon": "env | grep A_KEY",
    "the network": "(exec 3<>/dev/tcp/127.0.0.1/{port})",
    "writing to the system": "touch /usr/x",
    "writing to the root": "touch /x",
    "writing to its own command": "touch /run/houston/x",
    "a device of the machine": "cat /dev/vda /dev/sda /dev/mem",
    "rights": "mount -t tmpfs x /mnt",
}


async def test_what_an_agent_cannot_reach(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text("secret")
    other = make_host(rollout="other")
    await other.prepare(None)
    (other.workspace / "secret").write_text("secret")
    host = make_host(hidden=(home,))
    await host.prepare(None)
    await host.snapshots.take("first")
    terminal = await host.terminal("main", create=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for name, text in HIDDEN.items():
            script = text.format(root=tmp_path / "root", home=home, pid=os.getpid(), port=port)
            for code, said in (
                await _says(host, script),
                await _says(host, script, writable=False),
            ):
                assert code != 0, (name, said)
                assert "secret" not in said.replace("/secret", ""), name
            status, lines = await finish(terminal, f"( {script} )")
            assert status.exit_code != 0, (name, lines)


_OPEN_TO_WRITING = """
import os
found = []
for place, folders, names in os.walk("/proc"):
    if place == "/proc":
        folders[:] = [n for n in folders if not n.isdigit() and n not in ("self", "thread-self")]
    for path in (os.path.join(place, name) for name in names):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            found.append(path)
        except OSError:
            pass
print(len(found), found[:5])
raise SystemExit(not os.path.exists("/proc/sys/kernel/core_pattern"))
"""
_NESTED = """
import ctypes, os
call = ctypes.CDLL(None)
opened = call.unshare(0x10000000 | 0x20000 | 0x02000000) == 0  # user, mount, cgroup
os.makedirs("/workspace/m", exist_ok=True)
mounted = call.mount(b"none", b"/workspace/m", b"cgroup2", 0, None) == 0
thawed = call.mount(b"none", b"/proc", None, 32 | 4096, None) == 0  # remount, bind: writable
print(mounted and os.access("/workspace/m/cgroup.procs", os.W_OK), thawed)
"""
KERNEL = {
    "no file of /proc opens for writing": (_OPEN_TO_WRITING, "0 []"),
    "no mount makes one writable": (_NESTED, "False False"),
    "what the kernel holds is not read": (
        "for n in kcore slabinfo kpageflags timer_list vmallocinfo; do"
        " (head -c 1 /proc/$n) 2>/dev/null | wc -c; done | sort -u",
        "0",
    ),
    "there are no capabilities": (
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')])",
        str(["0" * 16] * 5),
    ),
}


@pytest.mark.parametrize("name", KERNEL)
async def test_root_inside_does_not_rule_the_kernel(name: str, host: LocalHost) -> None:
    script, expected = KERNEL[name]
    command = script
    if "print(" in script:
        (host.workspace / "look.py").write_text(script)
        command = "python3 $WORKSPACE/look.py"
    for writable in (True, False):
        assert await _says(host, command, writable=writable) == (0, expected + "\n")
    terminal = await host.terminal("main", create=True)
    assert (await finish(terminal, command))[1] == [expected]


LINKS = {
    # name: (where an agent may write, the link there, what it says, the workspace's place)
    "in the image, out of it": ("image", "srv", "/oldroot{victim}", "/srv/app"),
    "in the image, upwards out of it": ("image", "srv", "../../oldroot{victim}", "/srv/app"),
    "in the image, to another of its own": ("image", "srv", "/var/srv", "/srv/app"),
    "in the image, where the workspace lies": ("image", "app", "/oldroot{victim}/app", "/app"),
    "in the temporary folder": ("private/tmp", "x", "/oldroot{victim}", "/tmp/x/app"),
    "in the home folder": ("private/home", "x", "/oldroot{victim}", "/home/agent/x/app"),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_where_something_is_mapped_leads_nowhere_outside(name: str, tmp_path: Path) -> None:
    where, link, target, workdir = LINKS[name]
    for folder in ("workspace", "private/home", "private/tmp", "victim"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "workspace" / "mine").write_text("mine")
    image = small_image.make_root(tmp_path / "image") if where == "image" else None
    (tmp_path / where / link).symlink_to(target.format(victim=tmp_path / "victim"))
    private = tmp_path / "private"
    sandbox = sandbox_profile.SandboxProfile(
        "bubblewrap", tmp_path / "workspace", private / "home", private / "tmp",
        image=image, workdir=workdir,
    )  # fmt: skip
    command = sandbox.wrap(["/usr/bin/cat", f"{workdir}/mine"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert not [*(tmp_path / "victim").iterdir()]
    assert (done.stdout, done.stderr) == ("mine", "")


def test_links_in_a_circle_are_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "home").symlink_to("home")
    sandbox = sandbox_profile.SandboxProfile(
        "bubblewrap", tmp_path, tmp_path, tmp_path, image=tmp_path / "image"
    )
    with pytest.raises(HoustonError, match=r"/home/agent cannot be mapped: .* circle"):
        sandbox.wrap(["true"])


async def test_the_network_is_there_when_the_task_allows_it(make_host: MakeHost) -> None:
    host = make_host(network=True)
    await host.prepare(None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, said = await _says(host, f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}")
    assert code == 0, said


@pytest.mark.skipif(
    not process_enclosure.landlock_command(), reason="this kernel cannot scope abstract sockets"
)
async def test_the_network_brings_no_abstract_sockets_along(make_host: MakeHost) -> None:
    host = make_host(network=True)
    await host.prepare(None)
    name = f"houston-abstract-{os.getpid()}"
    ask = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}')"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        await asyncio.to_thread(subprocess.run, ["python3", "-c", ask], check=True)
        code, said = await _says(host, f'python3 -c "{ask}"')
    assert code == 1 and "not permitted" in said
    terminal = await host.terminal("main", create=True)
    assert (await finish(terminal, "sleep 9 & kill %1"))[0].exit_code == 0


async def test_groups_that_somebody_removed_are_made_again(make_host: MakeHost) -> None:
    host = make_host()
    await host.prepare(None)
    groups = control_groups.find_groups(host.folder.parents[1] / "limits" / "r1.json")
    assert groups is not None
    groups.end_processes()
    for door in groups.procs_files:
        for _ in range(200):  # the kernel takes a moment to forget those that ended
            with contextlib.suppress(OSError):
                door.parent.rmdir()
            if not door.exists():
                break
            await asyncio.sleep(0.01)
        assert not door.exists()
    assert await _says(host, "echo on") == (0, "on\n")
    assert all(door.exists() for door in groups.procs_files)


async def test_named_folders_are_readable_but_a_home_in_them_is_not(
    make_host: MakeHost, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    (models / "home").mkdir(parents=True)
    (models / "weights").write_text("w")
    (models / "home" / "database").write_text("secret")
    host = make_host(read=(models,), hidden=(models / "home",), environment={"MODELS": str(models)})
    await host.prepare(None)
    _, said = await _says(host, "cat $MODELS/weights; ls $MODELS/home; touch $MODELS/x")
    assert said.startswith("w") and "database" not in said and "Read-only" in said
    inside = make_host(rollout="r2", read=(models / "home",), hidden=(models / "home",))
    with pytest.raises(HoustonError, match="must not see"):
        await inside.prepare(None)


@pytest.mark.parametrize("shown", [True, False], ids=["in what is mapped", "elsewhere"])
async def test_a_terminal_never_shows_the_home_that_its_rollout_moved_to(
    make_host: MakeHost, tmp_path: Path, shown: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    first, home = tmp_path / "first", (data if shown else tmp_path) / "home"
    before = make_host(read=(data,), hidden=(first,), owner=str(first))
    await before.prepare(None)
    opened = await before.terminal("main", create=True)
    await finish(opened, "cd /tmp")
    await before.close()
    home.mkdir()
    (home / "houston.db").write_text("secret")
    after = make_host(read=(data,), hidden=(first, home), owner=str(home))
    await after.prepare(None, begun=True)
    assert (await (await after.terminal("main")).status()).alive is not shown
    terminal = await after.terminal("main", create=True)
    _, lines = await finish(terminal, f"pwd; ls -R {data}")
    assert lines[0] == ("/workspace" if shown else "/tmp") and "houston.db" not in str(lines)


async def test_the_workspace_home_and_tmp_are_one_for_all_its_processes(host: LocalHost) -> None:
    terminal = await host.terminal("main", create=True)
    own = f"houston-own-{os.getpid()}"
    await finish(
        terminal, f"echo a > /workspace/w; echo b > ~/h; echo c > /tmp/{own}; ln -s /tmp/{own} l"
    )
    code, said = await _says(host, f"cat w ~/h /tmp/{own}; pwd; echo $WORKSPACE")
    assert (code, said.split()) == (0, ["a", "b", "c", "/workspace", "/workspace"])
    assert (host.workspace / "w").read_text() == "a\n"
    assert not Path("/tmp", own).exists()


async def test_python_is_the_one_that_python3_starts_here(host: LocalHost) -> None:
    ask = "import sys; print(sys.version)"
    here = await asyncio.to_thread(subprocess.check_output, ["python3", "-c", ask])
    done = await host.spawn(["python3", "-c", ask], seconds=30)
    assert done.stdout == here


async def test_an_evaluator_sees_task_and_workspace_read_only_and_has_scratch(
    host: LocalHost, tmp_path: Path
) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "evaluate.py").write_text("import os; print(os.getcwd(), os.environ['WORKSPACE'])")
    (host.workspace / "answer").write_text("42")
    code, said = await _says(
        host,
        f"cat $WORKSPACE/answer; python3 {task}/evaluate.py; echo s > s && cat $TMPDIR/s;"
        f" touch {task}/x; touch $WORKSPACE/x; echo left > left",
        writable=False,
        extra_read=[task],
    )
    assert code == 0
    assert said.startswith("42/scratch /workspace\ns\n") and said.count("Read-only") == 2
    assert sorted(p.name for p in host.workspace.iterdir()) == ["answer"]
    assert not list((host.folder / "private").glob("scratch-*"))
    done = await host.spawn(
        ["python3", "evaluate.py"], seconds=30, writable=False, extra_read=[task], cwd=str(task)
    )
    assert done.stdout.decode().split() == [str(task), "/workspace"]


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
async def test_a_process_is_ended_with_all_it_started(kind: str, make_host: MakeHost) -> None:
    host = make_host(sandbox=kind)
    await host.prepare(None)
    script = f"trap '' TERM HUP; setsid {_NAP} & nohup {_NAP} & echo on; {_NAP}"
    done = await host.spawn(["bash", "-c", script], seconds=3)
    assert (done.exit_code, done.stdout) == (None, b"on\n")
    assert not _sleepers()
    stop = asyncio.Event()
    running = asyncio.create_task(host.spawn(_NAP.split(), seconds=600, stop=stop))
    await until(_sleepers)
    stop.set()
    assert (await asyncio.wait_for(running, 60)).exit_code is None
    running = asyncio.create_task(host.spawn(_NAP.split(), seconds=600))
    await until(_sleepers)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await host.spawn(["bash", "-c", f"setsid {_NAP} >/dev/null 2>&1 & exit 0"], seconds=30)
    await until(lambda: not _sleepers())


_NAP = f"sleep 6{os.getpid()}"
"""Told apart from what other tests have sleeping at the same time."""


def _sleepers() -> list[int]:
    return [
        pid
        for pid, entry in process_table.list_processes().items()
        if entry.name == "sleep"
        and entry.state != "Z"
        and _NAP.encode().replace(b" ", b"\0") in _words_of(pid)
    ]


def _words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended since the table was read
        return b""


async def test_output_beyond_the_limit_is_dropped_and_said(host: LocalHost) -> None:
    done = await host.spawn(
        ["bash", "-c", "head -c 3000000 /dev/zero; echo e >&2"], seconds=30, output_limit=1000
    )
    assert (done.exit_code, len(done.stdout), done.stderr, done.cut) == (0, 1000, b"e\n", True)


async def test_exit_codes_and_missing_programs(host: LocalHost) -> None:
    assert (await host.spawn(["bash", "-c", "exit 7"], seconds=30)).exit_code == 7
    missing = await host.spawn(["no-such-program"], seconds=30)
    assert missing.exit_code not in (0, None) and b"no-such-program" in missing.stderr


async def test_a_daemon_that_is_killed_takes_its_spawned_processes_along(
    tmp_path: Path, make_host: MakeHost
) -> None:
    make_host(rollout="r")  # ends what outlives a daemon
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from houston_daemon.hosts.local_host import LocalHost\n"
        "SHUT_IN = dict(sandbox='bubblewrap', network=False, hidden=())\n"
        "async def main():\n"
        "    h = LocalHost(Path(sys.argv[1]), 'r', **SHUT_IN)\n"
        "    await h.prepare(None)\n"
        "    run = asyncio.create_task(h.spawn(sys.argv[2].split(), seconds=600))\n"
        "    print('up', flush=True); await run\n"
        "asyncio.run(main())\n"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path / "root"), _NAP, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await asyncio.wait_for(child.stdout.readline(), 30) == b"up\n"
    await until(_sleepers)
    child.kill()
    await child.wait()
    await until(lambda: not _sleepers())


async def test_prepare_copies_the_source_once(make_host: MakeHost, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    (source / "link").symlink_to("a")
    host = make_host()
    await host.prepare(source)
    (host.workspace / "a").write_text("2")
    await make_host().prepare(source)
    assert (host.workspace / "a").read_text() == "2"
    assert (host.workspace / "link").is_symlink()
    with pytest.raises(HoustonError, match="could not be copied"):
        await make_host(rollout="r2").prepare(tmp_path / "missing")


@pytest.mark.parametrize("lost", ["workspace", "its folder", "all of the host"])
async def test_a_workspace_that_is_gone_is_never_made_anew(
    lost: str, make_host: MakeHost, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    host = make_host()
    await host.prepare(source)
    gone = {"workspace": host.workspace, "its folder": host.folder}.get(lost, tmp_path / "root")
    shutil.rmtree(gone)
    with pytest.raises(HoustonError, match="is gone; it was there"):
        await make_host().prepare(source, begun=lost == "all of the host")
    assert not host.workspace.exists()


async def test_a_first_start_that_was_cut_off_copies_again(
    make_host: MakeHost, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    half = make_host().workspace.with_name("workspace.new")
    half.mkdir(parents=True)
    (half / "b").write_text("half")
    await make_host().prepare(source)
    assert [path.name for path in make_host().workspace.iterdir()] == ["a"]


@pytest.mark.parametrize("source", [".", "..", "root", "root/rollouts", "link"])
async def test_a_source_that_would_be_copied_into_itself_is_refused(
    source: str, make_host: MakeHost, tmp_path: Path
) -> None:
    (tmp_path / "root" / "rollouts").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path)
    host = make_host()
    with pytest.raises(HoustonError, match="where its copy would be stored") as refused:
        await host.prepare(tmp_path / source)
    assert len(str(refused.value)) < 1_000
    assert not host.workspace.exists()


async def test_what_is_no_plain_file_is_left_out_and_named(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "a").write_text("1")
    (source / "a").chmod(0o755)
    (source / "dangling").symlink_to("nowhere")
    os.mkfifo(source / "below" / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(source / "socket"))
    with (source / "holes").open("wb") as file:
        file.truncate(20 << 30)
    host = make_host()
    await host.prepare(source)
    found = sorted(path.name for path in host.workspace.rglob("*"))
    assert found == ["a", "below", "dangling", "holes"]
    assert (host.workspace / "a").stat().st_mode & 0o777 == 0o755
    assert (host.workspace / "holes").stat().st_size == 20 << 30
    assert "below/pipe" in caplog.text and "socket" in caplog.text


async def test_a_failed_copy_gives_a_short_reason(make_host: MakeHost, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(60):
        (source / f"{number:02}-{'n' * 240}").write_text("xx")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limit[1]))
    try:
        with pytest.raises(HoustonError, match="could not be copied") as refused:
            await make_host().prepare(source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "57 more" in str(refused.value) and len(str(refused.value)) <= 1_000


async def test_a_machine_without_bubblewrap_is_refused_with_a_way_out(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("tmux", "bash", "script", "python3", "true"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(HoustonError, match="bwrap is not installed") as refused:
        await make_host().prepare(None)
    assert "apt install bubblewrap" in refused.value.next and '"none"' in refused.value.next
    (programs / "bwrap").write_text(
        "#!/bin/bash\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n"
    )
    (programs / "bwrap").chmod(0o755)
    with pytest.raises(HoustonError, match="user namespace"):
        await make_host().prepare(None)
    await make_host(rollout="r2", sandbox="none").prepare(None)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_everything_works_for_a_user_without_rights(tmp_path: Path) -> None:
    place = Path("/tmp") / f"houston-test-{os.getpid()}"
    place.mkdir(mode=0o700)
    nobody = pwd.getpwnam("nobody")
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    script = (
        "import asyncio, os, sys, site; from pathlib import Path\n"
        "from houston_daemon.hosts.local_host import LocalHost\n"
        "SHUT_IN = dict(sandbox='bubblewrap', network=False, hidden=())\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "os.environ.update(PATH='/usr/bin:/bin', HOME='/nonexistent')\n"
        "async def main():\n"
        "    h = LocalHost(Path(sys.argv[1]), 'r', **SHUT_IN)\n"
        "    await h.prepare(None)\n"
        "    t = await h.terminal('main', create=True)\n"
        "    at = await t.run('id -u; sleep 60 & kill %1; wait; echo x > f; (exit 3)')\n"
        "    s = await t.wait(20, asyncio.Event())\n"
        "    print(s.exit_code, (await t.lines(at))[0])\n"
        "    print((await h.spawn(['id', '-u'], seconds=9, writable=False)).stdout.decode())\n"
        "    print([f.path for f in (await h.snapshots.take('a')).files])\n"
        "    await h.destroy_terminals()\n"
        "asyncio.run(main())\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(place)], capture_output=True, text=True, timeout=60
        )
    finally:
        shutil.rmtree(place)
    assert done.stdout.split() == ["3", "65534", "65534", "['f']"], done.stderr


def test_only_prefixes_outside_the_system_are_mapped_for_python() -> None:
    for folder in sandbox_profile.find_python_folders():
        assert not folder.startswith("/usr/") and Path(folder).is_dir()
        assert not Path.home().is_relative_to(folder)


_SERVE = "python3 -m http.server 8123 --bind 127.0.0.1"
_REACH = "for i in $(seq 40); do (exec 3<>/dev/tcp/127.0.0.1/8123) 2>/dev/null && exit 0; {}; done"


async def test_the_sessions_of_a_rollout_reach_each_other_and_nobody_else(
    make_host: MakeHost,
) -> None:
    host, other = make_host(), make_host(rollout="other")
    await host.prepare(None)
    await other.prepare(None)
    first = await host.terminal("first", create=True)
    await first.run(_SERVE)
    reach = _REACH.format("sleep 0.1") + "; exit 1"
    assert await _says(host, reach) == (0, "")
    await host.close()
    again = make_host()  # as a restarted worker finds it
    second = await again.terminal("second", create=True)
    assert (await finish(second, f"({reach})"))[0].exit_code == 0
    now = _REACH.format("exit 1")
    assert await _says(again, now, writable=False) == (1, ""), "an evaluator has its own network"
    assert (await _says(other, now))[0] == 1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 8123), timeout=5)


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
async def test_what_a_task_sets_is_on_nobodys_command_line(
    sandbox: str, make_host: MakeHost
) -> None:
    secret = "sk-of-the-task"
    host = make_host(sandbox=sandbox, environment={"API_KEY": secret, "EMPTY": ""})
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    await terminal.run("sleep 30")
    ask = "import os; print(os.environ['API_KEY'], repr(os.environ['EMPTY']))"
    done = await host.spawn(["python3", "-c", ask], seconds=20)
    assert done.stdout.decode() == f"{secret} ''\n", done.stderr
    assert not [pid for pid in process_table.list_processes() if secret.encode() in _words_of(pid)]
    assert (await host.terminal("two", create=True)).name == "two"
    assert (await finish(await host.terminal("two"), "echo $API_KEY"))[1] == [secret]
    assert not list(host.folder.glob("private/settings-*"))


@pytest.mark.parametrize("through", ["its own path", "a link"])
@pytest.mark.parametrize("how", ["a task", "a mapped folder"])
async def test_a_home_inside_what_is_mapped_stays_hidden(
    how: str, through: str, make_host: MakeHost, tmp_path: Path
) -> None:
    """A home lies beside the task file as often as not, and evaluators run what the agent wrote."""
    real = tmp_path / "project"
    (real / "trajectories").mkdir(parents=True)
    (real / "trajectories" / "houston.db").write_text("secret")
    (real / "evaluate.py").write_text("shown")
    (tmp_path / "link").symlink_to(real)
    named = real if through == "its own path" else tmp_path / "link"
    read = (named,) if how == "a mapped folder" else ()
    host = make_host(read=read, hidden=(real / "trajectories",))
    await host.prepare(None)
    look = f"cat {named}/evaluate.py; cat {named}/trajectories/*; echo x >{named}/trajectories/y"
    if how == "a task":
        _, said = await _says(host, look, writable=False, extra_read=[named])
    else:
        _, said = await _says(host, look)
    assert said.startswith("shown") and "secret" not in said and "Read-only" in said
