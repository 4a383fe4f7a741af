// Check of an event's fields against its kind. Agents are untrusted, and the server passes unknown
// events on. A malformed event must not break the page.

import type { ActionArguments, SessionEvent, ObservationExtras, Truncation } from "./event";

type FieldKind = "string" | "number" | "strings" | "objects";
/** Field kinds. A question mark allows absent and null. */
type EventShape = Record<string, FieldKind | `${FieldKind}?`>;

const ACTIONS: { [K in keyof ActionArguments]: EventShape } = {
  start: { task: "string" },
  message: { content: "string", mode: "string?", attachments: "strings?" },
  run: { command: "string" },
  read: { path: "string" },
  write: { path: "string", content: "string" },
  edit: { path: "string" },
  browse: { url: "string" },
  think: { content: "string" },
  plan: { content: "string" },
  finish: { message: "string?" },
  confirm: {},
  set_model: { model: "string" },
  interrupt: {},
  pause: {},
  resume: {},
  stop: {},
  end: {},
};

const OBSERVATIONS: { [K in keyof ObservationExtras]: EventShape } = {
  run: { command: "string", exit_code: "number?", duration_ms: "number" },
  read: { path: "string" },
  write: { path: "string", bytes: "number" },
  edit: { path: "string", diff: "string" },
  browse: { url: "string" },
  chat: { attachments: "strings?" },
  message: {},
  think: {},
  plan: { items: "objects" },
  confirm: { request: "string", action: "string", risk: "string", options: "strings" },
  confirmed: { request: "string", decision: "string" },
  usage: {
    model: "string",
    total_input_tokens: "number",
    total_output_tokens: "number",
    total_cost_usd: "number?",
    known_cost_usd: "number?",
    context_used: "number",
    context_limit: "number?",
  },
  agent_state_changed: { agent_state: "string", reason: "string?" },
  interrupted: { what: "string", stopped_ms: "number" },
  queue: { items: "objects" },
  sandbox: { phase: "string", exit_code: "number?", stderr_tail: "string?", isolation: "string?" },
  error: { code: "string", detail: "string" },
};

/** Kinds reserved for the user and for the server. From an agent they count as unknown. */
const USER_ACTIONS = ["start", "message", "confirm", "set_model", "interrupt", "pause", "resume", "stop", "end"];
const SERVER_OBSERVATIONS = ["chat", "confirmed", "usage", "agent_state_changed", "interrupted", "queue", "sandbox"];

/** Returns the event, or a plainly drawn one of unknown kind if the fields do not match. */
export function checkEvent(event: SessionEvent): SessionEvent {
  const message = asText(event.message);
  if ("action" in event) {
    const isFit = isAllowedFrom(event, event.action, USER_ACTIONS) && matchesShape(ACTIONS, event.action, event.args);
    const name = isFit ? event.action : unknownName(event.action);
    return { ...event, message, action: name as keyof ActionArguments, args: asObject(event.args) as ActionArguments[keyof ActionArguments] };
  }
  const isFit = isAllowedFrom(event, event.observation, SERVER_OBSERVATIONS) && matchesShape(OBSERVATIONS, event.observation, event.extras);
  const name = isFit ? event.observation : unknownName(event.observation);
  const extras = asObject(event.extras) as unknown as ObservationExtras[keyof ObservationExtras];
  return { ...event, message, observation: name as keyof ObservationExtras, content: asText(event.content), extras };
}

/**
 * Returns the truncation of a text. Extras are untrusted, so a link must lead to this server's API.
 */
export function truncationOf(extras: object | undefined): Truncation | undefined {
  const { truncated } = asObject(extras);
  const { bytes, href } = asObject(truncated);
  if (typeof bytes !== "number") return undefined;
  return { bytes, href: typeof href === "string" && href.startsWith("/api/") ? href : undefined };
}

function isAllowedFrom({ source }: SessionEvent, name: string, reserved: readonly string[]): boolean {
  return source !== "agent" || !reserved.includes(name);
}

function matchesShape(shapes: Record<string, EventShape>, name: unknown, fields: unknown): boolean {
  const shape = typeof name === "string" && Object.hasOwn(shapes, name) ? shapes[name] : undefined;
  if (!shape) return false;
  const values = asObject(fields);
  return Object.entries(shape).every(([field, kind]) => isKind(values[field], kind));
}

function isKind(value: unknown, kind: FieldKind | `${FieldKind}?`): boolean {
  if (kind.endsWith("?") && (value === undefined || value === null)) return true;
  switch (kind.replace("?", "") as FieldKind) {
    case "string":
      return typeof value === "string";
    case "number":
      return typeof value === "number";
    case "strings":
      return Array.isArray(value) && value.every((one) => typeof one === "string");
    case "objects":
      return Array.isArray(value) && value.every((one) => typeof one === "object" && one !== null);
  }
}

/** Marks a known name on a malformed event, so it is not taken for a valid one. */
function unknownName(name: unknown): string {
  const text = asText(name);
  return Object.hasOwn(ACTIONS, text) || Object.hasOwn(OBSERVATIONS, text) ? `${text} (unreadable)` : text;
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

function asText(value: unknown): string {
  return typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value);
}
