// Builder of session frames in server order.

import type { ActionArguments, SessionEvent, ObservationExtras, EventOrigin, RiskAssessment } from "../src/wire/event";
import { reduce, type ReducerInput } from "../src/state/reduce";
import { emptyState, type ScreenState } from "../src/state/screenState";

interface EventTies {
  item?: string;
  cause?: number;
  source?: EventOrigin;
  risk?: RiskAssessment;
}

/** Origins of observations other than the agent. */
const ORIGINS: Partial<Record<keyof ObservationExtras, EventOrigin>> = {
  agent_state_changed: "server",
  changes: "server",
  chat: "user",
  checkpoint: "server",
  forked: "server",
  pushed: "server",
  repository: "server",
  confirmed: "server",
  interrupted: "server",
  queue: "server",
  sandbox: "server",
  notice: "server",
  usage: "server",
};

export class FrameScript {
  readonly frames: ReducerInput[] = [];
  private seq = 0;

  addAction<K extends keyof ActionArguments>(source: EventOrigin, action: K, args: ActionArguments[K], ties: EventTies = {}): this {
    return this.push({ ...this.base(source), ...ties, action, args });
  }

  addObservation<K extends keyof ObservationExtras>(
    observation: K, content: string, extras: ObservationExtras[K], { source, ...ties }: EventTies = {},
  ): this {
    return this.push({ ...this.base(source ?? ORIGINS[observation] ?? "agent"), ...ties, observation, content, extras });
  }

  state(agent_state: ObservationExtras["agent_state_changed"]["agent_state"], reason?: string, more: { turn_over?: boolean } = {}): this {
    return this.addObservation("agent_state_changed", "", { agent_state, reason, since: "2026-01-01T00:00:00.000Z", ...more });
  }

  /** Adds a frame without a seq. */
  push(frame: ReducerInput): this {
    this.frames.push(frame);
    return this;
  }

  play(from: ScreenState = emptyState): ScreenState {
    return reduce(from, this.frames);
  }

  private base(source: EventOrigin): Pick<SessionEvent, "seq" | "at" | "source"> {
    this.seq += 1;
    return { seq: this.seq, at: new Date(Date.UTC(2026, 0, 1, 0, 0, this.seq)).toISOString(), source };
  }
}

/** Returns the rows in short form: kind and content. */
export function rowsOf(state: ScreenState): string[] {
  return state.rows.map((row) => {
    switch (row.kind) {
      case "summary":
        return `summary: ${row.markdown}`;
      case "user":
        return `${row.phase} user: ${row.text}`;
      case "text":
      case "thinking":
        return `${row.kind}${row.open ? " open" : ""}${row.partial ? " partial" : ""}: ${row.text}`;
      case "tool":
        return `${row.name ?? "unwritten"} ${row.end ? `${row.end.outcome}: ${row.end.content}` : `running: ${row.output.text}`}`;
      case "plan":
        return `plan: ${row.markdown}`;
      case "turn":
        return `turn ${row.outcome}`;
      case "notice":
        return `${row.tone}: ${row.text}${row.detail ? ` (${row.detail})` : ""}`;
    }
  });
}
