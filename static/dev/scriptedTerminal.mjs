// Simulated shell behind the terminal socket. Echoes keys and knows a few words.

const PROMPT = "\x1b[32mdev\x1b[0m:\x1b[34m~\x1b[0m$ ";
const RESET = "\x18\x1bc";
const ANSWERS = {
  colours: Array.from({ length: 8 }, (_, n) => `\x1b[3${n}mcolour ${n}\x1b[0m \x1b[38;2;${n * 30};120;200mexact\x1b[0m`).join("\r\n"),
  link: "see https://example.org/page and \x1b]8;;https://example.org/hidden\x07a hidden link\x1b]8;;\x07",
  title: "\x1b]0;a title\x07\x1b]52;c;ZXZpbA==\x07nothing to see",
  ls: "README.md  hello.sh  src",
};

export class ScriptedTerminal {
  clients = new Map();
  screen = PROMPT;
  line = "";

  constructor(name, onEnd) {
    this.name = name;
    this.onEnd = onEnd;
  }

  attach(socket, size) {
    const isFirst = this.clients.size === 0;
    this.clients.set(socket, size);
    this.control(socket, { type: "ready", name: this.name, opened: isFirst });
    this.announceSize();
    socket.send(Buffer.from(`${RESET}\x1b[?2004h${this.screen}`));
    socket.on("close", () => {
      this.clients.delete(socket);
      this.announceSize();
    });
    socket.on("message", (data, isBinary) => {
      if (isBinary) return this.input(data.toString());
      const frame = JSON.parse(data);
      if (frame.type === "ping") this.control(socket, { type: "pong" });
      if (frame.type !== "resize") return;
      this.clients.set(socket, { cols: frame.cols, rows: frame.rows });
      this.announceSize();
    });
  }

  record() {
    const { cols, rows } = this.size();
    return { name: this.name, title: null, cols, rows, clients: this.clients.size, command: "bash", created_at: new Date(0).toISOString() };
  }

  input(text) {
    for (const key of text.replace(/\x1b\[20[01]~/g, "")) {
      if (key === "\r") this.run();
      else if (key === "\x7f") this.erase();
      else if (key === "\x03") this.print(`^C\r\n${PROMPT}`, "");
      else if (key === "\x04") this.end({ code: 0 });
      else this.print(key === "\x1b" ? "^[" : key, this.line + key);
    }
  }

  run() {
    const [word, ...rest] = this.line.trim().split(" ");
    if (word === "exit") return this.end({ code: Number(rest[0] ?? 0) });
    if (word === "crash") return this.end({ reason: "sandbox" });
    if (word === "flood") for (let n = 0; n < 400; n += 1) this.print("flood of output ".repeat(2000), "");
    const answer = ANSWERS[word] ?? (word === "echo" ? rest.join(" ") : word === "" ? "" : `${word}: command not found`);
    this.print(`\r\n${answer}${answer && "\r\n"}${PROMPT}`, "");
  }

  erase() {
    if (this.line !== "") this.print("\b \b", this.line.slice(0, -1));
  }

  print(text, line) {
    this.line = line;
    this.screen = (this.screen + text).slice(-100_000);
    for (const socket of this.clients.keys()) socket.send(Buffer.from(text));
  }

  end(how) {
    for (const socket of this.clients.keys()) {
      this.control(socket, { type: "exit", ...how });
      socket.close(1000);
    }
    this.onEnd();
  }

  size() {
    const sizes = [...this.clients.values()];
    const least = (field) => Math.min(...sizes.map((size) => size[field]), 500);
    return { cols: least("cols"), rows: least("rows") };
  }

  announceSize() {
    [...this.clients.keys()].forEach((socket, n) => {
      this.control(socket, { type: "size", ...this.size(), clients: this.clients.size, answers: n === 0 });
    });
  }

  control(socket, frame) {
    socket.send(JSON.stringify(frame));
  }
}
