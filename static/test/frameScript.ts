// Builds the frames of a session in the order in which a server would send them.

import type { Actions, Event, Observations, Source } from "../src/wire/event";
import { reduce, type Input } from "../src/state/reduce";
import { empty, type SessionState } from "../src/state/session";

interface Ties {
  item?: string;
  cause?: number;
}

/** Who says what, where it is not the agent. */
const SPEAKERS: Partial<Record<keyof Observations, Source>> = {
  agent_state_changed: "server",
  chat: "user",
  confirmed: "server",
  interrupted: "server",
  queue: "server",
  sandbox: "server",
  usage: "server",
};

export class Script {
  readonly frames: Input[] = [];
  private seq = 0;

  act<K extends keyof Actions>(source: Source, action: K, args: Actions[K], ties: Ties = {}): this {
    return this.push({ ...this.base(source), ...ties, action, args });
  }

  see<K extends keyof Observations>(observation: K, content: string, extras: Observations[K], ties: Ties = {}): this {
    return this.push({ ...this.base(SPEAKERS[observation] ?? "agent"), ...ties, observation, content, extras });
  }

  state(agent_state: Observations["agent_state_changed"]["agent_state"], reason?: string, more: { turn_over?: boolean } = {}): this {
    return this.see("agent_state_changed", "", { agent_state, reason, since: "2026-01-01T00:00:00.000Z", ...more });
  }

  /** Any frame that has no seq. */
  push(frame: Input): this {
    this.frames.push(frame);
    return this;
  }

  play(from: SessionState = empty): SessionState {
    return reduce(from, this.frames);
  }

  private base(source: Source): Pick<Event, "seq" | "at" | "source"> {
    this.seq += 1;
    return { seq: this.seq, at: new Date(Date.UTC(2026, 0, 1, 0, 0, this.seq)).toISOString(), source };
  }
}

/** The rows in short: one word for the kind, and what stands in them. */
export function rowsOf(state: SessionState): string[] {
  return state.rows.map((row) => {
    switch (row.kind) {
      case "user":
        return `${row.phase} user: ${row.text}`;
      case "text":
      case "thinking":
        return `${row.kind}${row.open ? " open" : ""}${row.partial ? " partial" : ""}: ${row.text}`;
      case "tool":
        return `${row.name ?? "unwritten"} ${row.end ? `${row.end.outcome}: ${row.end.content}` : `running: ${row.output.text}`}`;
      case "plan":
        return `plan: ${row.markdown}`;
      case "notice":
        return `${row.tone}: ${row.text}${row.detail ? ` (${row.detail})` : ""}`;
    }
  });
}
