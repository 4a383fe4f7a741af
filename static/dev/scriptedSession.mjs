// Simulated session. Speaks the wire protocol and runs nothing.

import { turn } from "./turn.mjs";

export class ScriptedSession {
  id = `01SCRIPTED${Math.random().toString(36).slice(2, 12).toUpperCase()}`;
  title = "";
  archived = false;
  state = "starting";
  events = [];
  /** Growing items: item and kind to the text so far. */
  growing = new Map();
  queue = [];
  sockets = new Set();
  accepted = new Set();
  usage = { input: 0, output: 0, cost: 0 };
  createdAt = new Date().toISOString();
  /** Number of the current turn. Earlier turns stop playing. */
  playing = 0;
  paused = null;
  parent = null;
  /** Cloned repository, if any. */
  repository = null;

  constructor(task = "") {
    this.task = task;
    this.title = task.split("\n", 1)[0].slice(0, 80);
  }

  record() {
    const { id, title, state, archived, repository } = this;
    const { input, output, cost } = this.usage;
    return {
      id, title, state, archived, repository, reason: null, agent: "greenroom", model: "demo", image: "debian:stable-slim",
      sandbox: "process", created_at: this.createdAt, updated_at: this.events.at(-1)?.at ?? this.createdAt,
      last_seq: this.events.length, attached: this.sockets.size, budget_usd: null,
      usage: { input_tokens: input, output_tokens: output, cost_usd: cost }, parent: this.parent,
    };
  }

  eventsOf(query) {
    const last = query.get("last");
    const after = last ? Math.max(0, this.events.length - Number(last)) : Number(query.get("after") ?? 0);
    return { items: this.events.slice(after, after + Number(last ?? query.get("limit") ?? 100)), last_seq: this.events.length };
  }

  async start() {
    const { seq } = this.addAction("user", "start", { task: this.task });
    this.moveTo("starting");
    for (const phase of ["creating", "starting", "connecting", "ready"]) {
      await pause(180);
      const isolation = phase === "ready" ? "Scripted: nothing runs, nothing is isolated." : undefined;
      this.addObservation("server", "sandbox", "", { phase, isolation });
    }
    this.addObservation("user", "chat", this.task, { turn: this.nextTurn() }, { cause: seq });
    await this.play(this.task);
  }

  attach(socket, after) {
    const send = (frame) => socket.send(JSON.stringify(frame));
    this.sockets.add(socket);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("message", (text) => this.receive(JSON.parse(text), send));
    send({ status: "hello", session: this.record(), last_seq: this.events.length, state: this.state });
    this.events.slice(after).forEach(send);
    send({ status: "synced", seq: this.events.length });
    for (const [key, content] of this.growing) {
      const [delta, item] = key.split("/");
      send({ delta, item, offset: 0, content });
    }
  }

  receive({ id, action, args = {} }, send) {
    if (action === "ping") return send({ status: "pong" });
    if (id && !this.accepted.has(id)) {
      this.accepted.add(id);
      const rejection = this.execute(action, args);
      if (rejection) return send({ error: { code: "conflict", message: rejection }, id });
    }
    if (id) send({ status: "accepted", id, seq: this.events.length });
  }

  /** Returns the reason for a rejection, if any. */
  execute(action, args) {
    switch (action) {
      case "message":
        return this.receiveMessage(args);
      case "interrupt":
        return this.state === "running" ? this.interrupt() : "nothing is running";
      case "pause":
        this.addAction("user", "pause", {});
        this.paused = deferred();
        return this.moveTo("paused");
      case "resume":
        this.addAction("user", "resume", {});
        this.paused?.resolve();
        this.paused = null;
        return this.moveTo("running");
      case "run":
        return this.runOwn(args.command);
      case "set_model":
      case "set_budget":
        return void this.addAction("user", action, args);
      case "confirm":
        this.approval?.resolve();
        this.addObservation("server", "confirmed", "", { request: args.request, decision: args.decision });
        return this.moveTo("running");
      case "edit_queue":
        this.queue = this.queue.flatMap((waiting) => {
          if (waiting.item !== args.item) return [waiting];
          return args.remove ? [] : [{ ...waiting, content: args.content }];
        });
        return void this.addObservation("server", "queue", "", { items: this.queue });
      default:
        return `unsupported action \`${action}\``;
    }
  }

  runOwn(command) {
    const item = `u${this.events.length}`;
    this.addAction("user", "run", { command }, { item });
    setTimeout(() => this.addObservation("agent", "run", "scripted\n", { command, exit_code: 0, duration_ms: 12 }, { item }), 300);
  }

  /** Asks for approval and waits for the answer. */
  async ask(action, risk, why) {
    this.approval = deferred();
    this.addObservation("agent", "confirm", why, { request: `q${this.events.length}`, action, risk, options: ["allow", "allow_always", "deny"] });
    this.moveTo("awaiting_confirmation");
    await this.approval.promise;
  }

  receiveMessage({ content, mode }) {
    const item = `m${this.events.length}`;
    const { seq } = this.addAction("user", "message", { content, mode }, { item });
    if (this.state === "idle") {
      this.addObservation("user", "chat", content, { turn: this.nextTurn() }, { item, cause: seq });
      void this.play(content);
    } else if (mode === "steer") {
      this.addObservation("user", "chat", content, {}, { item, cause: seq });
    } else {
      this.queue = [...this.queue, { item, content }];
      this.addObservation("server", "queue", "", { items: this.queue });
    }
  }

  /** Returns a new session with the events up to a number. */
  fork(at = this.events.length, title = this.title) {
    const fork = new ScriptedSession(title);
    fork.events = this.events.slice(0, at);
    fork.playing = this.playing;
    fork.parent = { id: this.id, seq: at };
    fork.addObservation("server", "forked", "", { from: this.id, at });
    fork.moveTo("idle");
    return fork;
  }

  interrupt() {
    this.playing += 1;
    this.moveTo("interrupting");
    setTimeout(() => {
      this.growing.clear();
      this.addObservation("server", "interrupted", "", { what: "the agent's turn", stopped_ms: 140, rung: "cancel", partial: false });
      this.moveTo("idle");
    }, 140);
  }

  end() {
    this.playing += 1;
    this.moveTo("ended", "you ended it");
  }

  change({ title, archived }) {
    this.title = title ?? this.title;
    this.archived = archived ?? this.archived;
  }

  async play(task) {
    const mine = ++this.playing;
    this.moveTo("running");
    for await (const step of turn(task, mine)) {
      await this.paused?.promise;
      if (mine !== this.playing) return;
      step(this);
    }
    this.moveTo("idle");
    this.addCapture(`turn-${mine}`);
    const [next] = this.queue;
    if (!next) return;
    this.queue = this.queue.slice(1);
    this.addObservation("user", "chat", next.content, { turn: this.nextTurn() }, { item: next.item });
    this.addObservation("server", "queue", "", { items: this.queue });
    await this.play(next.content);
  }

  /** Returns the name of the turn that `play` begins next. */
  nextTurn() {
    return `turn-${this.playing + 1}`;
  }

  addCapture(checkpoint) {
    const left_out = [{ path: "node_modules", reason: "ignored" }];
    this.addObservation("server", "checkpoint", "", { checkpoint, kind: "turn", files: 12, bytes: 40_000, left_out });
    const files = [{ path: "hello.sh", change: "modified", added: 2, removed: 1 }, { path: "assets/picture.png", change: "modified" }];
    this.addObservation("server", "changes", "", { checkpoint, since: "start", files, added: 2, removed: 1 });
  }

  moveTo(state, reason) {
    this.state = state;
    this.addObservation("server", "agent_state_changed", "", { agent_state: state, reason, since: new Date().toISOString() });
  }

  addAction(source, action, args, ties = {}) {
    return this.publish({ source, ...ties, action, args });
  }

  addObservation(source, observation, content, extras, ties = {}) {
    return this.publish({ source, ...ties, observation, content, extras });
  }

  publish(body) {
    const event = { seq: this.events.length + 1, at: new Date().toISOString(), ...body };
    this.events.push(event);
    for (const key of this.growing.keys()) if (key.endsWith(`/${event.item}`)) this.growing.delete(key);
    this.broadcast(event);
    return event;
  }

  grow(delta, item, content) {
    const key = `${delta}/${item}`;
    const before = this.growing.get(key) ?? "";
    this.growing.set(key, before + content);
    this.broadcast({ delta, item, offset: Buffer.byteLength(before), content });
  }

  addUsage(input, output) {
    this.usage = { input: this.usage.input + input, output: this.usage.output + output, cost: this.usage.cost + input * 3e-6 + output * 15e-6 };
    this.addObservation("server", "usage", "", {
      model: "demo", input_tokens: input, output_tokens: output, cost_usd: 0.01, total_input_tokens: this.usage.input,
      total_output_tokens: this.usage.output, total_cost_usd: this.usage.cost, context_used: 42_000, context_limit: 200_000,
    });
  }

  broadcast(frame) {
    for (const socket of this.sockets) socket.send(JSON.stringify(frame));
  }
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
