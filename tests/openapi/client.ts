// Drives a session with the client that is generated from the OpenAPI document.
//
// Usage: node client.js BASE_URL TOKEN

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type ApiEvent = components["schemas"]["Event"];

const [baseUrl = "", token = ""] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

/** Reads a session's stream of events until `isLast` holds. Fails if the stream ends before. */
async function streamUntil(id: string, isLast: (event: ApiEvent) => boolean): Promise<void> {
  const { data, response } = await api.GET("/api/sessions/{id}/events", {
    params: { path: { id } },
    headers: { Accept: "text/event-stream" },
    parseAs: "stream",
  });
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  assert.ok(data);
  let text = "";
  for await (const part of data.pipeThrough(new TextDecoderStream())) {
    text += part;
    const frames = text.split("\n\n");
    text = frames.pop() ?? "";
    for (const frame of frames) {
      const line = frame.split("\n").find((line) => line.startsWith("data: "));
      if (line && frame.startsWith("id: ") && isLast(JSON.parse(line.slice("data: ".length)))) return;
    }
  }
  assert.fail("the stream ended early");
}

const isState = (state: components["schemas"]["AgentState"]) => (event: ApiEvent) =>
  "observation" in event && event.observation === "agent_state_changed" && event.extras.agent_state === state;

// Create.
const created = await api.POST("/api/sessions", { body: { title: "Generated client", effort: "low" } });
assert.equal(created.response.status, 201);
const session = created.data;
assert.ok(session);
const params = { path: { id: session.id } };
await streamUntil(session.id, isState("idle"));

// Message. The same key acts once.
const key = { "Idempotency-Key": "once" };
const message = { params: { ...params, header: key }, body: { content: "slow: 1000", mode: "queue" } } as const;
const sent = await api.POST("/api/sessions/{id}/messages", message);
assert.equal(sent.response.status, 202);
assert.deepEqual((await api.POST("/api/sessions/{id}/messages", message)).data?.seq, sent.data?.seq);
await streamUntil(session.id, isState("running"));

// Interrupt.
const interrupted = await api.POST("/api/sessions/{id}/interrupt", { params });
assert.equal(interrupted.response.status, 200);
await streamUntil(session.id, (event) => "observation" in event && event.observation === "interrupted");

// Events.
const page = await api.GET("/api/sessions/{id}/events", { params: { ...params, query: { kind: "message" } } });
assert.ok(typeof page.data === "object", "the page is JSON, not a stream");
const first = page.data.items[0];
assert.ok(first && "action" in first && first.action === "message");
assert.equal(first.args.content, "slow: 1000");
const bad = await api.GET("/api/sessions/{id}/events", { params: { ...params, query: { after: 1, last: 1 } } });
assert.equal(bad.error?.error.code, "invalid_args");

// Upload and download.
const file = { path: { id: session.id, path: "notes.txt" } };
const text = (body: unknown): string => String(body);
const uploaded = await api.PUT("/api/sessions/{id}/files/{path}", {
  params: file,
  body: "a note",
  bodySerializer: text,
  headers: { "Content-Type": "application/octet-stream" },
});
assert.equal(uploaded.data?.bytes, 6);
const downloaded = await api.GET("/api/sessions/{id}/files/{path}", { params: file, parseAs: "text" });
assert.equal(downloaded.data, "a note");

// Delete.
const ended = await api.DELETE("/api/sessions/{id}", { params });
assert.equal(ended.data?.state, "ended");
const purged = await api.DELETE("/api/sessions/{id}", { params: { ...params, query: { purge: true } } });
assert.equal(purged.response.status, 204);
const gone = await api.GET("/api/sessions/{id}", { params });
assert.equal(gone.response.status, 404);
assert.equal(gone.error?.error.code, "not_found");
