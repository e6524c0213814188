"""A small server of the hub's API, as `huggingface_hub` calls it: repositories with commits, small
files in git's way, large ones by LFS, tokens, private, gated and busy repositories.

It is no mock of the client: what is tested is the real `huggingface_hub` against it, over HTTP.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.engines.conftest import free_port

TOKEN = "hf_" + "Test" * 9
"""The token that the server takes; it writes as the user `houston`."""
LARGE_SUFFIXES = (".safetensors", ".bin", ".parquet", ".arrow")


@dataclass
class Repository:
    """One repository."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Commit → its files."""
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.refs["main"]]

    def commit(self, files: dict[str, bytes], deleted: Sequence[str] = ()) -> str:
        before = self.refs.get("main", "")
        content = {**self.commits.get(before, {}), **files}
        for gone in deleted:
            del content[gone]
        text = before + "".join(f"{n}{hashlib.sha1(content[n]).hexdigest()}" for n in content)
        name = hashlib.sha1(text.encode()).hexdigest()
        self.commits[name] = content
        self.refs["main"] = name
        return name


def is_large(name: str) -> bool:
    return name.endswith(LARGE_SUFFIXES)


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class HubServer:
    """`models` and `datasets` by `org/name`."""

    models: dict[str, Repository] = field(default_factory=dict)
    datasets: dict[str, Repository] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    """LFS objects by SHA-256."""
    asked: list[str] = field(default_factory=list)
    """Method and path of every request."""
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    """That are taken."""
    busy: bool = False
    """Whether everything is answered with 429."""
    read_only: bool = False
    """Whether the token may not write."""
    corrupt: bool = False
    """Whether a committed file is kept with a byte changed."""

    def start(self) -> None:
        port = free_port()
        app = Starlette(
            routes=[
                Route("/api/whoami-v2", self.whoami),
                Route("/api/repos/create", self.create, methods=["POST"]),
                Route("/api/validate-yaml", self.validate, methods=["POST"]),
                Route("/api/{kind}/{org}/{name}", self.info),
                Route("/api/{kind}/{org}/{name}/revision/{revision}", self.info),
                Route("/api/{kind}/{org}/{name}/tree/{revision}", self.tree),
                Route("/api/{kind}/{org}/{name}/preupload/{r}", self.preupload, methods=["POST"]),
                Route("/api/{kind}/{org}/{name}/commit/{r}", self.commit, methods=["POST"]),
                Route("/{org}/{name}.git/info/lfs/objects/batch", self.lfs, methods=["POST"]),
                Route(
                    "/datasets/{org}/{name}.git/info/lfs/objects/batch", self.lfs, methods=["POST"]
                ),
                Route("/lfs/{oid}", self.put, methods=["PUT"]),
                Route("/{org}/{name}/resolve/{revision}/{file:path}", self.resolve),
                Route("/datasets/{org}/{name}/resolve/{revision}/{file:path}", self.resolve),
            ]
        )
        self.server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
        self.url = f"http://127.0.0.1:{port}"
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    def add(self, repo: str, folder: Path, **how: bool) -> str:
        """Publish the files of a folder as a model; returns the commit."""
        files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
        return self.models.setdefault(repo, Repository(**how)).commit(files)

    # --- answers ---------------------------------------------------------------------------

    def refusal(self, request: Request, writes: bool = False) -> Response | None:
        self.asked.append(f"{request.method} {request.url.path}")
        if self.busy:
            return Response("slow down", 429, {"Retry-After": "0"})
        given = request.headers.get("authorization", "")
        if given and given.removeprefix("Bearer ") not in self.tokens:
            said = "Invalid credentials in Authorization header"
            return JSONResponse({"error": said}, 401, {"X-Error-Message": said})
        if writes and not given:
            return JSONResponse({"error": "Please log in."}, 401)
        if writes and self.read_only:
            return JSONResponse({"error": "this token may only read"}, 403)
        return None

    def find(self, request: Request) -> tuple[Repository, str] | Response:
        """The repository with the commit that is asked for, or why not."""
        if refused := self.refusal(request):
            return refused
        path = request.path_params
        kind = path.get("kind") or ("datasets" if "/datasets/" in request.url.path else "models")
        repositories: dict[str, Repository] = getattr(self, kind)
        repo = repositories.get(f"{path['org']}/{path['name']}")
        known = bool(request.headers.get("authorization"))
        if repo is None or (repo.private and not known):
            return JSONResponse(
                {"error": "Repository not found"},
                404 if known else 401,
                {"X-Error-Code": "RepoNotFound"},
            )
        revision = path.get("revision", "main")
        commit = repo.refs.get(revision, revision)
        if commit not in repo.commits:
            return JSONResponse(
                {"error": f"Invalid rev id: {revision}"}, 404, {"X-Error-Code": "RevisionNotFound"}
            )
        return repo, commit

    async def whoami(self, request: Request) -> Response:
        if refused := self.refusal(request, writes=True):
            return refused
        return JSONResponse({"type": "user", "name": "houston", "orgs": []})

    async def create(self, request: Request) -> Response:
        if refused := self.refusal(request, writes=True):
            return refused
        asked = await request.json()
        repo = f"{asked['organization']}/{asked['name']}"
        kind = "datasets" if asked.get("type") == "dataset" else "models"
        repositories: dict[str, Repository] = getattr(self, kind)
        if repo in repositories:
            said = "You already created this repo"
            return JSONResponse({"error": said, "url": f"{self.url}/{repo}"}, 409)
        made = Repository(private=asked.get("visibility") == "private")
        made.commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        repositories[repo] = made
        return JSONResponse({"url": f"{self.url}/{repo}"})

    async def validate(self, request: Request) -> Response:
        """As the hub: metadata that is no YAML mapping is an error."""
        content = (await request.json())["content"]
        parts = content.split("---\n")
        try:
            metadata = yaml.safe_load(parts[1]) if content.startswith("---\n") else None
        except yaml.YAMLError as problem:
            return JSONResponse({"errors": [{"message": str(problem)}], "warnings": []}, 400)
        if not isinstance(metadata, dict):
            return JSONResponse({"errors": [{"message": "no metadata"}], "warnings": []}, 400)
        return JSONResponse({"errors": [], "warnings": []})

    async def info(self, request: Request) -> Response:
        found = self.find(request)
        if isinstance(found, Response):
            return found
        repo, commit = found
        path = request.path_params
        siblings = [
            {
                "rfilename": name,
                "size": len(content),
                "blobId": blob(content),
                **({"lfs": lfs_fields(content)} if is_large(name) else {}),
            }
            for name, content in repo.commits[commit].items()
        ]
        id = f"{path['org']}/{path['name']}"
        fields = {"id": id, "modelId": id, "sha": commit, "private": repo.private}
        return JSONResponse({**fields, "siblings": siblings, "tags": [], "downloads": 0})

    async def tree(self, request: Request) -> Response:
        found = self.find(request)
        if isinstance(found, Response):
            return found
        repo, commit = found
        return JSONResponse(
            [
                {
                    "type": "file",
                    "path": name,
                    "size": len(content),
                    "oid": blob(content),
                    **({"lfs": lfs_fields(content, "oid")} if is_large(name) else {}),
                }
                for name, content in repo.commits[commit].items()
            ]
        )

    async def preupload(self, request: Request) -> Response:
        if refused := self.refusal(request, writes=True):
            return refused
        files = (await request.json())["files"]
        return JSONResponse(
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if is_large(file["path"]) else "regular",
                        "shouldIgnore": False,
                    }
                    for file in files
                ]
            }
        )

    async def lfs(self, request: Request) -> Response:
        if refused := self.refusal(request, writes=True):
            return refused
        objects = [
            {**entry, "actions": {"upload": {"href": f"{self.url}/lfs/{entry['oid']}"}}}
            for entry in (await request.json())["objects"]
        ]
        return JSONResponse({"transfer": "basic", "objects": objects})

    async def put(self, request: Request) -> Response:
        content = await request.body()
        oid = request.path_params["oid"]
        if hashlib.sha256(content).hexdigest() != oid:
            return Response("another content", 400)
        self.uploads[oid] = content
        return Response()

    async def commit(self, request: Request) -> Response:
        if refused := self.refusal(request, writes=True):
            return refused
        files: dict[str, bytes] = {}
        deleted = []
        for line in (await request.body()).splitlines():
            part: dict[str, Any] = json.loads(line)
            value = part["value"]
            if part["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif part["key"] == "lfsFile":
                files[value["path"]] = self.uploads[value["oid"]]
            elif part["key"] == "deletedFile":
                deleted.append(value["path"])
        if self.corrupt:
            files = {name: content[:-1] + b"?" for name, content in files.items()}
        path = request.path_params
        id = f"{path['org']}/{path['name']}"
        made = getattr(self, path["kind"])[id].commit(files, deleted)
        return JSONResponse({"commitUrl": f"{self.url}/{id}/commit/{made}", "commitOid": made})

    async def resolve(self, request: Request) -> Response:
        found = self.find(request)
        if isinstance(found, Response):
            return found
        repo, commit = found
        if repo.gated:
            said = "Access to this model is restricted."
            headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": said}
            return JSONResponse({"error": said}, 403, headers)
        name = request.path_params["file"]
        content = repo.commits[commit].get(name)
        if content is None:
            return Response("no such file", 404, {"X-Error-Code": "EntryNotFound"})
        etag = hashlib.sha256(content).hexdigest() if is_large(name) else blob(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        return Response(content, headers=headers, media_type="application/octet-stream")


def lfs_fields(content: bytes, hash_key: str = "sha256") -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {hash_key: digest, "size": len(content), "pointerSize": 130}
