// Check of an event's fields against its kind. Agents are untrusted, and the server passes unknown
// events on. A malformed event must not break the page.

import type { ActionArguments, EventOrigin, ObservationExtras, SessionEvent, TruncationMark } from "./event";
import { ACTIONS, OBSERVATIONS } from "./generated/kinds";

type FieldKind = "string" | "number" | "boolean" | "object" | "strings" | "objects" | "any";

/** Senders and fields of a kind. A question mark allows absent and null. */
export interface KindShape {
  senders: readonly EventOrigin[];
  fields: Record<string, FieldKind | `${FieldKind}?`>;
}

/** Returns the event, or a plainly drawn one of unknown kind if the fields do not match. */
export function checkEvent(event: SessionEvent): SessionEvent {
  const message = asText(event.message);
  if ("action" in event) {
    const name = isFit(event.source, ACTIONS, event.action, event.args) ? event.action : unknownName(event.action);
    return { ...event, message, action: name as keyof ActionArguments, args: asObject(event.args) as ActionArguments[keyof ActionArguments] };
  }
  const name = isFit(event.source, OBSERVATIONS, event.observation, event.extras) ? event.observation : unknownName(event.observation);
  const extras = asObject(event.extras) as unknown as ObservationExtras[keyof ObservationExtras];
  return { ...event, message, observation: name as keyof ObservationExtras, content: asText(event.content), extras };
}

/**
 * Returns the truncation of a text. Extras are untrusted, so a link must lead to this server's API.
 */
export function truncationOf(extras: object | undefined): TruncationMark | undefined {
  const { truncated } = asObject(extras);
  const { bytes, href } = asObject(truncated);
  if (typeof bytes !== "number") return undefined;
  return { bytes, href: typeof href === "string" && href.startsWith("/api/") ? href : undefined };
}

/** Agents are untrusted: from them, a kind of another sender counts as unknown. */
function isFit(source: EventOrigin, kinds: Record<string, KindShape>, name: unknown, fields: unknown): boolean {
  const kind = typeof name === "string" && Object.hasOwn(kinds, name) ? kinds[name] : undefined;
  if (!kind || (source === "agent" && !kind.senders.includes("agent"))) return false;
  const values = asObject(fields);
  return Object.entries(kind.fields).every(([field, shape]) => isKind(values[field], shape));
}

function isKind(value: unknown, kind: FieldKind | `${FieldKind}?`): boolean {
  if (kind.endsWith("?") && (value === undefined || value === null)) return true;
  switch (kind.replace("?", "") as FieldKind) {
    case "string":
      return typeof value === "string";
    case "number":
      return typeof value === "number";
    case "boolean":
      return typeof value === "boolean";
    case "object":
      return asObject(value) === value;
    case "strings":
      return Array.isArray(value) && value.every((one) => typeof one === "string");
    case "objects":
      return Array.isArray(value) && value.every((one) => typeof one === "object" && one !== null);
    case "any":
      return true;
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
