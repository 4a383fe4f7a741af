// Files of a simulated workspace, in memory. Answers like the server: lists, ranges, tags and
// conflicts.

const text = (content) => ({ content: Buffer.from(content), modified: Date.now() });
const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");

export class ScriptedFiles {
  files = new Map([
    ["README.md", text("# Scripted\n\nA workspace in memory.\n")],
    ["hello.sh", text('#!/usr/bin/env bash\nset -euo pipefail\n\nname="${1:-world}"\necho "hello, $name"\n')],
    [".gitignore", text("target/\n")],
    ["src/main.rs", text('fn main() {\n    println!("hello");\n}\n')],
    ["src/deep/notes.txt", text("deep\n")],
    ["windows.ini", text("[a]\r\nb = 1\r\n")],
    ["picture.png", { content: PNG, modified: Date.now() }],
    ["program.bin", { content: Buffer.from(Array.from({ length: 100_000 }, (_, n) => (n * 7) % 256)), modified: Date.now() }],
    ["log.txt", text(Array.from({ length: 90_000 }, (_, n) => `line ${n + 1} of a long log\n`).join(""))],
  ]);
  folders = new Set();
  version = 1;

  answer(request, response, url, body) {
    const send = (status, value, headers = {}) => {
      response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(value === undefined ? "" : JSON.stringify(value));
    };
    const fail = (status, code, message) => send(status, { error: { code, message } });
    const [, path] = /\/files\/(.*)$/.exec(url.pathname) ?? [];
    if (url.pathname.endsWith("/files") && request.method === "GET") return send(200, this.list(url.searchParams));
    if (url.pathname.endsWith(":mkdir")) return this.folders.add(JSON.parse(body).path) && send(201, {});
    if (url.pathname.endsWith(":move")) return this.move(JSON.parse(body)) ? send(200, {}) : fail(409, "exists", "the target already exists");
    if (url.pathname.endsWith("/archive")) return response.writeHead(200, { "Content-Disposition": "attachment; filename=workspace.zip" }).end("PK");
    return this.file(request, response, { path: decodeURIComponent(path), body, send, fail });
  }

  file(request, response, { path, body, send, fail }) {
    const file = this.files.get(path);
    if (request.method === "DELETE") return this.remove(path) ? send(204) : fail(404, "not_found", `there is no \`${path}\``);
    const tag = file && this.tag(file);
    const expected = request.headers["if-match"];
    if (request.headers["if-none-match"] === "*" && file) return fail(412, "exists", `\`${path}\` already exists`);
    if (expected && expected !== tag) return fail(412, "changed", `\`${path}\` changed`);
    if (request.method === "PUT") {
      if (path.endsWith(".exe")) return fail(415, "denied_type", "files.denied_types lists `.exe`; upload another type");
      const written = { content: body, modified: Date.now(), version: (this.version += 1) };
      this.files.set(path, written);
      return send(file ? 200 : 201, { path, bytes: body.length }, { ETag: this.tag(written) });
    }
    if (!file) return fail(404, "not_found", `there is no \`${path}\` in the workspace`);
    const type = path.endsWith(".png") ? "image/png" : "application/octet-stream";
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    const headers = { "Content-Type": type, ETag: tag };
    if (from === undefined) return response.writeHead(200, headers).end(file.content);
    const total = file.content.length;
    if (Number(from) >= total) return fail(416, "invalid_args", "the file has no such part");
    const end = Math.min(Number(to), total - 1);
    const range = `bytes ${from}-${end}/${total}`;
    response.writeHead(206, { ...headers, "Content-Range": range }).end(file.content.subarray(Number(from), end + 1));
  }

  list(query) {
    const directory = query.get("path") ?? "";
    const start = directory === "" ? "" : `${directory}/`;
    const found = new Map();
    const paths = [...this.files.keys(), ...[...this.folders].map((folder) => `${folder}/`)].filter((path) => path.startsWith(start));
    for (const path of paths) {
      const below = path.slice(start.length);
      const parts = below.split("/");
      const depths = query.get("recursive") ? parts.length : 1;
      for (let depth = 1; depth <= depths; depth += 1) {
        const inner = start + parts.slice(0, depth).join("/");
        if (parts[depth - 1] !== "") found.set(inner, this.entry(inner, depth < parts.length));
      }
    }
    const word = query.get("q")?.replace(/^\*/, "").toLowerCase();
    const items = [...found.values()].filter(({ name }) => !word || name.toLowerCase().includes(word)).sort((a, b) => a.path.localeCompare(b.path));
    return { items, next_cursor: null, shared: false };
  }

  entry(path, isDirectory) {
    const file = this.files.get(path);
    const name = path.split("/").at(-1);
    return {
      name, path, encoded: false, kind: isDirectory ? "directory" : "file", bytes: file?.content.length ?? 0,
      modified: new Date(file?.modified ?? 0).toISOString(), executable: name.endsWith(".sh"), hidden: name.startsWith("."),
      etag: file ? this.tag(file) : null,
    };
  }

  tag({ content, version = 0 }) {
    return `"${content.length}:${version}"`;
  }

  move({ from, to }) {
    if (this.files.has(to)) return false;
    for (const [path, file] of [...this.files]) {
      if (path !== from && !path.startsWith(`${from}/`)) continue;
      this.files.delete(path);
      this.files.set(to + path.slice(from.length), file);
    }
    return true;
  }

  remove(path) {
    const gone = [...this.files.keys()].filter((one) => one === path || one.startsWith(`${path}/`));
    for (const one of gone) this.files.delete(one);
    return this.folders.delete(path) || gone.length > 0;
  }
}
