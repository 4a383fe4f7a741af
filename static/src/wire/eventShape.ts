// Whether an event has the fields that its kind promises. An agent is untrusted, and what the server does not know it passes
// on as it came: an event in a strange shape must not take the page down.

import type { Actions, Event, Observations, Truncated } from "./event";

type Kind = "string" | "number" | "strings" | "objects";
/** A kind with a question mark may be absent or null. */
type Shape = Record<string, Kind | `${Kind}?`>;

const ACTIONS: { [K in keyof Actions]: Shape } = {
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

const OBSERVATIONS: { [K in keyof Observations]: Shape } = {
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

/** What only a person asks for, and what only the server knows. An agent that says such a thing is not believed. */
const OF_A_PERSON = ["start", "message", "confirm", "set_model", "interrupt", "pause", "resume", "stop", "end"];
const OF_THE_SERVER = ["chat", "confirmed", "usage", "agent_state_changed", "interrupted", "queue", "sandbox"];

/** The event, or one of an unknown kind in its place, which is shown as plainly as it can be. */
export function checked(event: Event): Event {
  const message = asText(event.message);
  if ("action" in event) {
    const isFit = isBelieved(event, event.action, OF_A_PERSON) && fits(ACTIONS, event.action, event.args);
    const name = isFit ? event.action : unknownName(event.action);
    return { ...event, message, action: name as keyof Actions, args: asObject(event.args) as Actions[keyof Actions] };
  }
  const isFit = isBelieved(event, event.observation, OF_THE_SERVER) && fits(OBSERVATIONS, event.observation, event.extras);
  const name = isFit ? event.observation : unknownName(event.observation);
  const extras = asObject(event.extras) as unknown as Observations[keyof Observations];
  return { ...event, message, observation: name as keyof Observations, content: asText(event.content), extras };
}

/** Whether a text is only a part. Extras come from an agent: a link leads to this server's API or nowhere. */
export function truncatedOf(extras: object | undefined): Truncated | undefined {
  const { truncated } = asObject(extras);
  const { bytes, href } = asObject(truncated);
  if (typeof bytes !== "number") return undefined;
  return { bytes, href: typeof href === "string" && href.startsWith("/api/") ? href : undefined };
}

function isBelieved({ source }: Event, name: string, ofOthers: readonly string[]): boolean {
  return source !== "agent" || !ofOthers.includes(name);
}

function fits(shapes: Record<string, Shape>, name: unknown, fields: unknown): boolean {
  const shape = typeof name === "string" && Object.hasOwn(shapes, name) ? shapes[name] : undefined;
  if (!shape) return false;
  const given = asObject(fields);
  return Object.entries(shape).every(([field, kind]) => isKind(given[field], kind));
}

function isKind(value: unknown, kind: Kind | `${Kind}?`): boolean {
  if (kind.endsWith("?") && (value === undefined || value === null)) return true;
  switch (kind.replace("?", "") as Kind) {
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

/** A name of ours on a foreign shape is set apart, so that nobody takes it for ours. */
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
