// Opening of the terminal socket.

import { serverAddress } from "../basePath";
import { socketProtocols } from "../wire/secret";

/** Size of a terminal in cells. */
export interface TerminalSize {
  cols: number;
  rows: number;
}

/** Opens the socket of a terminal. The server opens a missing terminal. */
export function openTerminalSocket(session: string, name: string, { cols, rows }: TerminalSize): WebSocket {
  const query = new URLSearchParams({ name, cols: String(cols), rows: String(rows) });
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const path = serverAddress(`/ws/sessions/${encodeURIComponent(session)}/terminal`);
  const socket = new WebSocket(`${scheme}://${location.host}${path}?${query}`, socketProtocols());
  socket.binaryType = "arraybuffer";
  return socket;
}
