// Parser of recording files.

import { isEvent, type ServerFrame, type Session } from "./frame";

/** Error of an invalid recording, with a text for the user. */
export class RecordingError extends Error {}

/**
 * Returns the frames of a recording. Accepts `GET …/export?format=jsonl` (a session line, then one
 * line per event). Also accepts `greenroom export` and the Events tab's download (`way` and
 * `frame`, deltas included).
 */
export function readRecording(text: string): ServerFrame[] {
  const frames: ServerFrame[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const frame = parseLine(line, index + 1);
    if (frame) frames.push(frame);
  }
  if (!frames.some((frame) => "seq" in frame)) throw new RecordingError("it has no events");
  return frames;
}

function parseLine(line: string, number: number): ServerFrame | null {
  let read: unknown;
  try {
    read = JSON.parse(line);
  } catch {
    throw new RecordingError(`line ${number} is not JSON`);
  }
  if (typeof read !== "object" || read === null) throw new RecordingError(`line ${number} is not an object`);
  if (isEvent(read)) return read;
  if ("way" in read && "frame" in read) return read.way === "in" ? (read.frame as ServerFrame) : null;
  if ("session" in read && !("status" in read)) return helloFromExport(read.session);
  if ("event" in read) return read.event as ServerFrame;
  return "seq" in read || "delta" in read || "status" in read ? (read as ServerFrame) : null;
}

/**
 * Returns the `hello` of an export. The export's first line holds the final session, so the state
 * is reset.
 */
function helloFromExport(session: unknown): ServerFrame | null {
  if (typeof session !== "object" || session === null || !("id" in session)) return null;
  return { status: "hello", session: { ...(session as Session), state: "starting" }, last_seq: 0, state: null };
}
