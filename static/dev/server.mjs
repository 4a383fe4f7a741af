// Development server for the UI. Serves `dist/` and plays a scripted session, without the Rust
// server and a sandbox. Run `npm run dev`, then open http://127.0.0.1:3001. Every message plays
// `turn.mjs` again.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { WebSocketServer } from "ws";
import { ScriptedChanges } from "./scriptedChanges.mjs";
import { ScriptedFiles } from "./scriptedFiles.mjs";
import { ScriptedRepository } from "./scriptedRepository.mjs";
import { ScriptedSession } from "./scriptedSession.mjs";
import { ScriptedTerminal } from "./scriptedTerminal.mjs";

const PORT = Number(process.env.PORT ?? 3001);
const DIST = fileURLToPath(new URL("../dist/", import.meta.url));
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
/** Content security policy of the real server, so violations show up here. */
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const OPTIONS = {
  agents: [{ name: "greenroom" }],
  models: [{ name: "claude-sonnet-4-5", demo: false, takes_images: true }, { name: "demo", demo: true, takes_images: false }],
  limits: { upload_bytes: 64 * 1024 * 1024, memory_bytes: 2 ** 31, cpus: 2 },
  defaults: { agent: "greenroom", model: "demo", effort: null, image: "debian:bookworm-slim" },
  prices_as_of: "2026-01",
  sandbox: { driver: "docker", isolation: "Scripted: nothing runs, nothing is isolated.", network: "none" },
};

/** Answer to a fork without a choice of files, so that the choice can be looked at. */
const NO_CHECKPOINT = "no checkpoint is kept for this event; choose the files of now, or none";

/** @type {Map<string, ScriptedSession>} */
const sessions = new Map();
/** @type {Map<string, ScriptedFiles>} */
const workspaces = new Map();
/** @type {Map<string, ScriptedChanges>} */
const changes = new Map();
/** @type {Map<string, ScriptedRepository>} */
const repositories = new Map();
/** @type {Map<string, Map<string, ScriptedTerminal>>} */
const terminals = new Map();

const server = createServer(async (request, response) => {
  const url = new URL(request.url, "http://dev");
  if (url.pathname.startsWith("/api/")) return api(request, response, url);
  const path = normalize(join(DIST, url.pathname));
  const file = path.startsWith(DIST) && extname(path) ? path : join(DIST, "index.html");
  try {
    const body = await readFile(file);
    response.writeHead(200, { "Content-Type": TYPES[extname(file)], "Content-Security-Policy": CSP }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});

async function api(request, response, url) {
  const answer = (status, body) => {
    response.writeHead(status, { "Content-Type": "application/json" }).end(body && JSON.stringify(body));
  };
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  const [, , noun, id, what, name] = url.pathname.split("/");
  if (noun === "sessions" && /^(files(:move|:mkdir)?|archive)$/.test(what)) return workspaceOf(id).answer(request, response, url, bytes);
  if (noun === "sessions" && /^(checkpoints|diff|patch)$/.test(what)) return changesOf(id).answer(request, response, url);
  const body = bytes.length > 0 ? JSON.parse(bytes) : {};

  if (noun === "repositories") return answer(200, ScriptedRepository.offered());
  if (noun === "sessions" && what === "repository") {
    const { status, value } = repositories.get(id)?.answer(name, body) ?? { status: 404, value: error("no_repository", "the session has no repository") };
    return answer(status, value);
  }
  if (noun === "options") return answer(200, OPTIONS);
  if (noun === "admin" && id === "sandboxes") return answer(200, { items: sandboxes() });
  if (noun === "admin") return answer(200, { items: actors() });
  if (noun !== "sessions") return answer(404, error("not_found", `no \`${url.pathname}\``));
  if (!id && request.method === "POST") return answer(201, create(body).record());
  if (!id) return answer(200, list(url.searchParams));
  const session = sessions.get(id);
  if (!session) return answer(404, error("not_found", `no session \`${id}\``));
  if (what === "terminals") return answer(200, changeTerminals(request.method, id, name, body));
  if (what === "fork") return body.files ? answer(201, fork(session, body).record()) : answer(409, error("no_checkpoint", NO_CHECKPOINT));
  if (what === "events") return answer(200, session.eventsOf(url.searchParams));
  if (request.method === "PATCH") session.change(body);
  if (request.method === "DELETE" && url.searchParams.get("purge") === "true") sessions.delete(id);
  else if (request.method === "DELETE") session.end();
  return answer(200, session.record());
}

function workspaceOf(id) {
  const workspace = workspaces.get(id) ?? new ScriptedFiles();
  workspaces.set(id, workspace);
  return workspace;
}

function changesOf(id) {
  const known = changes.get(id) ?? new ScriptedChanges();
  changes.set(id, known);
  return known;
}

function terminalsOf(id) {
  const open = terminals.get(id) ?? new Map();
  terminals.set(id, open);
  return open;
}

function terminalOf(id, name) {
  const open = terminalsOf(id);
  const terminal = open.get(name) ?? new ScriptedTerminal(name, () => open.delete(terminal.name));
  open.set(name, terminal);
  return terminal;
}

/** Lists, renames or closes terminals, and returns those that are left. */
function changeTerminals(method, id, name, body) {
  const open = terminalsOf(id);
  const terminal = open.get(name);
  if (terminal && method === "DELETE") terminal.end({ code: 0, signal: "SIGHUP" });
  if (terminal && method === "PATCH") {
    open.delete(name);
    open.set((terminal.name = body.name), terminal);
    for (const socket of terminal.clients.keys()) terminal.control(socket, { type: "renamed", name: body.name });
  }
  return { items: [...open.values()].map((one) => one.record()) };
}

function create({ task, repo, ref }) {
  const session = new ScriptedSession(task);
  sessions.set(session.id, session);
  if (repo) repositories.set(session.id, new ScriptedRepository(session, repo, ref));
  session.start();
  return session;
}

function fork(source, { at, message, title }) {
  const session = source.fork(at, title);
  sessions.set(session.id, session);
  if (message) session.receiveMessage({ content: message });
  return session;
}

function list(query) {
  const items = [...sessions.values()]
    .map((session) => session.record())
    .filter((record) => record.archived === (query.get("archived") === "true"))
    .filter((record) => record.title.toLowerCase().includes((query.get("q") ?? "").toLowerCase()))
    .sort((a, b) => b.updated_at.localeCompare(a.updated_at));
  return { items, next_cursor: null, total: items.length };
}

function sandboxes() {
  return [...sessions.values()].map(({ id }, index) => ({
    session: id, driver: "process", state: "running", memory_bytes: (index + 3) * 7_000_000, cpu_us: Date.now() * 40, processes: 4,
  }));
}

function actors() {
  const at = new Date().toISOString();
  const actor = (kind, id, session = null, state = null) => ({
    kind, id, session, node: "dev", state, since: at, last_active: at, handled: 12, queued: null,
  });
  const perSession = [...sessions.values()].flatMap((session) => [
    actor("session", session.id, session.id, session.state),
    actor("agent_link", `link-${session.id}`, session.id, "connected"),
    ...[...session.sockets].map((_, index) => actor("frontend_socket", `socket-${index}-${session.id}`, session.id)),
  ]);
  return [actor("directory", "directory"), ...perSession, actor("sweeper", "sweeper")];
}

const error = (code, message) => ({ error: { code, message } });

const sockets = new WebSocketServer({ noServer: true });

server.on("upgrade", (request, stream, head) => {
  const { pathname, searchParams: query } = new URL(request.url, "http://dev");
  sockets.handleUpgrade(request, stream, head, (socket) => {
    const [, , id] = /^\/ws(\/sessions\/([^/]+)\/terminal)?$/.exec(pathname) ?? [];
    const session = sessions.get(id ?? query.get("session"));
    if (!session) return socket.close(4404, "no such session");
    if (id === undefined) return session.attach(socket, Number(query.get("after") ?? 0));
    const size = { cols: Number(query.get("cols") ?? 80), rows: Number(query.get("rows") ?? 24) };
    terminalOf(id, query.get("name") ?? "main").attach(socket, size);
  });
});

server.listen(PORT, "127.0.0.1", () => console.log(`the UI with a scripted session: http://127.0.0.1:${PORT}`));
