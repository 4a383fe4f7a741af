// Opening of the terminal socket. Sign-in data joins here.

/** Size of a terminal in cells. */
export interface TerminalSize {
  cols: number;
  rows: number;
}

/** Opens the socket of a terminal. The server opens a missing terminal. */
export function openTerminalSocket(session: string, name: string, { cols, rows }: TerminalSize): WebSocket {
  const query = new URLSearchParams({ name, cols: String(cols), rows: String(rows) });
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const socket = new WebSocket(`${scheme}://${location.host}/ws/sessions/${encodeURIComponent(session)}/terminal?${query}`);
  socket.binaryType = "arraybuffer";
  return socket;
}
