// Checkpoints and changes of a simulated workspace. The answers never change, apart from restores.

const HUNKS = `@@ -1,4 +1,5 @@
 #!/usr/bin/env bash
 set -euo pipefail
 
-echo "hello"
+name="\${1:-world}"
+echo "hello, $name"
`;

const facts = (path, change, added, removed) => ({
  path, encoded: false, change, from: null, from_encoded: false, binary: false, added, removed, truncated: false,
  old_mode: change === "created" ? null : "100644", new_mode: change === "deleted" ? null : "100644",
  old_bytes: change === "created" ? null : 57, new_bytes: change === "deleted" ? null : 74,
});
const lines = (sign, count) => Array.from({ length: count }, (_, n) => `${sign}line ${n + 1} of a log\n`).join("");

const FILES = [
  { ...facts("assets/picture.png", "modified", null, null), binary: true, diff: null },
  { ...facts("hello.sh", "modified", 2, 1), new_mode: "100755", diff: HUNKS },
  { ...facts("log.txt", "created", 10_000, 0), diff: `@@ -0,0 +1,10000 @@\n${lines("+", 10_000)}` },
  { ...facts("notes/new.md", "moved", 0, 0), from: "notes/old.md", from_encoded: false, diff: "" },
  { ...facts("old.txt", "deleted", 0, 3), diff: `@@ -1,3 +0,0 @@\n${lines("-", 3)}` },
];

const LEFT_OUT = [{ path: "node_modules", reason: "ignored" }, { path: "data.iso", reason: "too_large" }];

export class ScriptedChanges {
  items = [this.item("start", "start"), this.item("turn-1", "turn", { left_out: LEFT_OUT }), this.item("turn-2", "turn", { partial: true })];

  item(checkpoint, kind, more = {}) {
    const at = new Date().toISOString();
    return { checkpoint, kind, of: null, at, files: 12, bytes: 40_000, partial: false, left_out: [], left_out_more: 0, head: null, ...more };
  }

  answer(request, response, url) {
    const send = (value) => response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
    const { pathname, searchParams: query } = url;
    if (pathname.endsWith("/checkpoints")) return send({ offered: true, reason: null, items: this.items, stored_bytes: 9000, limit_bytes: 2 ** 30, damage: null });
    if (pathname.endsWith("/diff")) return send(this.diff(query));
    if (pathname.endsWith("/patch")) return response.writeHead(200, { "Content-Type": "text/x-patch" }).end(`--- a/hello.sh\n+++ b/hello.sh\n${HUNKS}`);
    return send(this.restore(decodeURIComponent(pathname.split("/").at(-2))));
  }

  diff(query) {
    const files = query.get("from") === "turn-1" ? FILES.slice(0, 2) : FILES;
    const sum = (key) => files.reduce((all, file) => all + (file[key] ?? 0), 0);
    return { from: query.get("from"), to: query.get("to"), files, more: 0, added: sum("added"), removed: sum("removed"), left_out: LEFT_OUT, left_out_more: 0 };
  }

  restore(of) {
    const [before, checkpoint] = [`before-restore-${this.items.length}`, `restore-${this.items.length}`];
    this.items.push(this.item(before, "before_restore"), this.item(checkpoint, "restore", { of }));
    return { checkpoint, before, restored: 2, removed: 1, failed: [] };
  }
}
