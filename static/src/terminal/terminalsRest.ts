// REST calls on the terminals of a session.

import { call, sessionPath } from "../wire/rest";

/** Largest number of terminals of a session. */
export const TERMINALS_LIMIT = 8;

/** Open terminal. */
export interface OpenTerminal {
  name: string;
  cols: number;
  rows: number;
  /** Number of attached clients. */
  clients: number;
  /** Command line in the foreground. `null` if the server cannot read it. */
  command: string | null;
}

interface TerminalList {
  items: OpenTerminal[];
}

const terminalsPath = (session: string) => `${sessionPath(session)}/terminals`;

export const listTerminals = (session: string): Promise<TerminalList> => call("GET", terminalsPath(session));

export const renameTerminal = (session: string, name: string, to: string): Promise<TerminalList> =>
  call("PATCH", `${terminalsPath(session)}/${encodeURIComponent(name)}`, { body: { name: to } });

/** Closes a terminal with all of its processes. */
export const closeTerminal = (session: string, name: string): Promise<TerminalList> =>
  call("DELETE", `${terminalsPath(session)}/${encodeURIComponent(name)}`);
