// Echo server that the bench `workspace` measures beside: a shell of node-pty over ws.

import { WebSocketServer } from "ws";
import { spawn } from "node-pty";

const server = new WebSocketServer({ port: 0, host: "127.0.0.1" }, () => console.log(server.address().port));
server.on("connection", (socket) => {
  const shell = spawn("/bin/sh", [], { name: "xterm-256color", cols: 80, rows: 24, cwd: process.argv[2], encoding: null });
  shell.onData((bytes) => socket.send(bytes));
  socket.on("message", (bytes) => shell.write(bytes));
  socket.on("close", () => shell.kill());
});
