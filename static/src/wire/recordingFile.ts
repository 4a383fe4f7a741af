// Files of frames, read again.

import { isEvent, type ServerFrame, type Session } from "./frame";

/** Why a file is no recording, in words for a person. */
export class NotARecording extends Error {}

/**
 * The frames of a recording: of `GET …/export?format=jsonl` (a line with the session, then one for each event), of
 * `greenroom export`, or of the Events tab (`way` and `frame`, deltas included).
 */
export function readRecording(text: string): ServerFrame[] {
  const frames: ServerFrame[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const frame = frameOf(line, index + 1);
    if (frame) frames.push(frame);
  }
  if (!frames.some((frame) => "seq" in frame)) throw new NotARecording("there is no event in it");
  return frames;
}

function frameOf(line: string, number: number): ServerFrame | null {
  let read: unknown;
  try {
    read = JSON.parse(line);
  } catch {
    throw new NotARecording(`line ${number} is not JSON`);
  }
  if (typeof read !== "object" || read === null) throw new NotARecording(`line ${number} is not an object`);
  if (isEvent(read)) return read;
  if ("way" in read && "frame" in read) return read.way === "in" ? (read.frame as ServerFrame) : null;
  if ("session" in read && !("status" in read)) return helloOf(read.session);
  if ("event" in read) return read.event as ServerFrame;
  return "seq" in read || "delta" in read || "status" in read ? (read as ServerFrame) : null;
}

/** An export begins with the session as it was in the end; its events tell how it came there. */
function helloOf(session: unknown): ServerFrame | null {
  if (typeof session !== "object" || session === null || !("id" in session)) return null;
  return { status: "hello", session: { ...(session as Session), state: "starting" }, last_seq: 0, state: null };
}
