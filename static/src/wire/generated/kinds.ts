// Generated from agent/protocol. Renew with `cargo xtask wire`.

import type { KindShape } from "../eventShape";
import type { Action, ObservationKind } from "./types";

/** Size limit of a client frame, in bytes of UTF-8. */
export const CLIENT_FRAME_LIMIT = 1048576;

export const ACTIONS: Record<Action["action"], KindShape> = {
  start: { senders: ["user"], fields: { task: "string" } },
  message: { senders: ["user"], fields: { content: "string", mode: "string?", attachments: "strings?" } },
  run: { senders: ["user", "agent"], fields: { command: "string" } },
  read: { senders: ["user", "agent"], fields: { path: "string" } },
  write: { senders: ["user", "agent"], fields: { path: "string", content: "string" } },
  edit: { senders: ["agent"], fields: { path: "string", change: "string", line: "number?", end_line: "number?", old: "string?", lines: "strings?" } },
  browse: { senders: ["user", "agent"], fields: { url: "string" } },
  tool: { senders: ["agent"], fields: { kind: "string", title: "string", name: "string?", input: "any?", locations: "objects?" } },
  think: { senders: ["agent"], fields: { content: "string" } },
  plan: { senders: ["agent"], fields: { content: "string" } },
  finish: { senders: ["agent"], fields: { message: "string?" } },
  confirm: { senders: ["user"], fields: { request: "string", decision: "string", reason: "string?", choice: "string?", input: "any?" } },
  set_mode: { senders: ["user"], fields: { mode: "string" } },
  set_model: { senders: ["user"], fields: { model: "string", effort: "string?" } },
  set_budget: { senders: ["user"], fields: { usd: "number?" } },
  kill_process: { senders: ["user"], fields: { pid: "number" } },
  interrupt: { senders: ["user"], fields: {} },
  pause: { senders: ["user"], fields: {} },
  resume: { senders: ["user"], fields: {} },
  stop: { senders: ["user", "server"], fields: {} },
  end: { senders: ["user"], fields: {} },
};

export const OBSERVATIONS: Record<ObservationKind["observation"], KindShape> = {
  run: { senders: ["agent"], fields: { command: "string", exit_code: "number?", signal: "string?", duration_ms: "number", timed_out: "boolean?", truncated: "object?" } },
  read: { senders: ["agent"], fields: { path: "string", truncated: "object?" } },
  write: { senders: ["agent"], fields: { path: "string", bytes: "number" } },
  edit: { senders: ["agent"], fields: { path: "string", line: "number", change: "string", lines: "strings", diff: "string" } },
  browse: { senders: ["agent"], fields: { url: "string", title: "string?", screenshot: "string?", html: "string?", console: "strings?", plain: "boolean?", truncated: "object?" } },
  tool: { senders: ["agent"], fields: { kind: "string", title: "string", name: "string?", status: "string", changes: "objects?", locations: "objects?", truncated: "object?" } },
  chat: { senders: ["user"], fields: { attachments: "strings?", turn: "string?" } },
  message: { senders: ["agent"], fields: { partial: "boolean?" } },
  think: { senders: ["agent"], fields: { partial: "boolean?" } },
  plan: { senders: ["agent", "user"], fields: { path: "string", items: "objects" } },
  compaction: { senders: ["agent"], fields: { dropped_bytes: "number", kept: "number" } },
  commands: { senders: ["agent"], fields: { items: "objects", more: "number?" } },
  confirm: { senders: ["agent"], fields: { request: "string", action: "string", risk: "object?", options: "strings", choices: "objects?", asked_by: "string?", call: "object?", editable: "boolean?", diff: "string?" } },
  confirmed: { senders: ["server"], fields: { request: "string", decision: "string", by: "string?", who: "string?", reason: "string?", rule: "string?", edited: "boolean?", withdrawn: "boolean?" } },
  usage: { senders: ["server"], fields: { model: "string", input_tokens: "number", output_tokens: "number", cache_read_tokens: "number?", cache_write_tokens: "number?", cost_usd: "number?", total_input_tokens: "number", total_output_tokens: "number", total_cost_usd: "number?", context_used: "number", context_limit: "number?", estimated: "boolean?" } },
  agent_state_changed: { senders: ["server"], fields: { agent_state: "string", reason: "string?", since: "string", turn_over: "boolean?" } },
  interrupted: { senders: ["server"], fields: { what: "string", stopped_ms: "number", rung: "string", partial: "boolean" } },
  queue: { senders: ["server"], fields: { items: "objects" } },
  sandbox: { senders: ["server"], fields: { phase: "string", exit_code: "number?", out_of_memory: "boolean?", stderr_tail: "string?", isolation: "string?" } },
  checkpoint: { senders: ["server"], fields: { checkpoint: "string", kind: "string", of: "string?", files: "number", bytes: "number", partial: "boolean?", left_out: "objects?", left_out_more: "number?" } },
  changes: { senders: ["server"], fields: { checkpoint: "string", since: "string", files: "objects", more: "number?", added: "number", removed: "number" } },
  forked: { senders: ["server"], fields: { from: "string", at: "number", checkpoint: "string?" } },
  repository: { senders: ["server"], fields: { phase: "string", url: "string", ref: "string?", commit: "string?", branch: "string?", detail: "string?" } },
  pushed: { senders: ["server"], fields: { url: "string", branch: "string", commit: "string" } },
  error: { senders: ["agent", "server"], fields: { code: "string", detail: "string" } },
  notice: { senders: ["agent", "server"], fields: { code: "string", detail: "string", attempts: "number?", waited_ms: "number?" } },
};
