// A session that only plays a part: it speaks the wire like the real one, and does nothing.

import { turn } from "./turn.mjs";

export class Rehearsal {
  id = `01REHEARSAL${Math.random().toString(36).slice(2, 12).toUpperCase()}`;
  title = "";
  archived = false;
  state = "starting";
  events = [];
  /** What grows right now: item and kind to the text so far. */
  growing = new Map();
  queue = [];
  sockets = new Set();
  accepted = new Set();
  usage = { input: 0, output: 0, cost: 0 };
  createdAt = new Date().toISOString();
  /** Counts the turns; a turn whose number has passed plays no further. */
  playing = 0;
  paused = null;

  constructor(task = "") {
    this.task = task;
    this.title = task.split("\n", 1)[0].slice(0, 80);
  }

  record() {
    const { id, title, state, archived } = this;
    const { input, output, cost } = this.usage;
    return {
      id, title, state, archived, reason: null, agent: "greenroom", model: "demo", image: "debian:stable-slim",
      sandbox: "process", created_at: this.createdAt, updated_at: this.events.at(-1)?.at ?? this.createdAt,
      last_seq: this.events.length, attached: this.sockets.size, budget_usd: null,
      usage: { input_tokens: input, output_tokens: output, cost_usd: cost },
    };
  }

  eventsOf(query) {
    const last = query.get("last");
    const after = last ? Math.max(0, this.events.length - Number(last)) : Number(query.get("after") ?? 0);
    return { items: this.events.slice(after, after + Number(last ?? query.get("limit") ?? 100)), last_seq: this.events.length };
  }

  async start() {
    const { seq } = this.act("user", "start", { task: this.task });
    this.moveTo("starting");
    for (const phase of ["creating", "starting", "connecting", "ready"]) {
      await pause(180);
      const isolation = phase === "ready" ? "Rehearsed: nothing runs, so nothing is isolated." : undefined;
      this.observe("server", "sandbox", "", { phase, isolation });
    }
    this.observe("user", "chat", this.task, {}, { cause: seq });
    await this.play(this.task);
  }

  attach(socket, after) {
    const send = (frame) => socket.send(JSON.stringify(frame));
    this.sockets.add(socket);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("message", (text) => this.hear(JSON.parse(text), send));
    send({ status: "hello", session: this.record(), last_seq: this.events.length, state: this.state });
    this.events.slice(after).forEach(send);
    send({ status: "synced", seq: this.events.length });
    for (const [key, content] of this.growing) {
      const [delta, item] = key.split("/");
      send({ delta, item, offset: 0, content });
    }
  }

  hear({ id, action, args = {} }, send) {
    if (action === "ping") return send({ status: "pong" });
    if (id && !this.accepted.has(id)) {
      this.accepted.add(id);
      const refusal = this.carryOut(action, args);
      if (refusal) return send({ error: { code: "conflict", message: refusal }, id });
    }
    if (id) send({ status: "accepted", id, seq: this.events.length });
  }

  /** Returns why not, where it makes no sense. */
  carryOut(action, args) {
    switch (action) {
      case "message":
        return this.hearMessage(args);
      case "interrupt":
        return this.state === "running" ? this.interrupt() : "nothing is running";
      case "pause":
        this.act("user", "pause", {});
        this.paused = deferred();
        return this.moveTo("paused");
      case "resume":
        this.act("user", "resume", {});
        this.paused?.resolve();
        this.paused = null;
        return this.moveTo("running");
      case "run":
        return this.runOwn(args.command);
      case "set_model":
        return void this.act("user", "set_model", args);
      case "confirm":
        this.asked?.resolve();
        this.observe("server", "confirmed", "", { request: args.request, decision: args.decision });
        return this.moveTo("running");
      case "edit_queue":
        this.queue = this.queue.flatMap((waiting) => {
          if (waiting.item !== args.item) return [waiting];
          return args.remove ? [] : [{ ...waiting, content: args.content }];
        });
        return void this.observe("server", "queue", "", { items: this.queue });
      default:
        return `a rehearsal does not know \`${action}\``;
    }
  }

  runOwn(command) {
    const item = `u${this.events.length}`;
    this.act("user", "run", { command }, { item });
    setTimeout(() => this.observe("agent", "run", "rehearsed\n", { command, exit_code: 0, duration_ms: 12 }, { item }), 300);
  }

  /** Asks the person, and goes on when they have answered. */
  async ask(action, risk, why) {
    this.asked = deferred();
    this.observe("agent", "confirm", why, { request: `q${this.events.length}`, action, risk, options: ["allow", "allow_always", "deny"] });
    this.moveTo("awaiting_confirmation");
    await this.asked.promise;
  }

  hearMessage({ content, mode }) {
    const item = `m${this.events.length}`;
    const { seq } = this.act("user", "message", { content, mode }, { item });
    if (this.state === "idle") {
      this.observe("user", "chat", content, {}, { item, cause: seq });
      void this.play(content);
    } else if (mode === "steer") {
      this.observe("user", "chat", content, {}, { item, cause: seq });
    } else {
      this.queue = [...this.queue, { item, content }];
      this.observe("server", "queue", "", { items: this.queue });
    }
  }

  interrupt() {
    this.playing += 1;
    this.moveTo("interrupting");
    setTimeout(() => {
      this.growing.clear();
      this.observe("server", "interrupted", "", { what: "the agent's turn", stopped_ms: 140, rung: "cancel", partial: false });
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
    const [next] = this.queue;
    if (!next) return;
    this.queue = this.queue.slice(1);
    this.observe("user", "chat", next.content, {}, { item: next.item });
    this.observe("server", "queue", "", { items: this.queue });
    await this.play(next.content);
  }

  moveTo(state, reason) {
    this.state = state;
    this.observe("server", "agent_state_changed", "", { agent_state: state, reason, since: new Date().toISOString() });
  }

  act(source, action, args, ties = {}) {
    return this.publish({ source, ...ties, action, args });
  }

  observe(source, observation, content, extras, ties = {}) {
    return this.publish({ source, ...ties, observation, content, extras });
  }

  publish(body) {
    const event = { seq: this.events.length + 1, at: new Date().toISOString(), ...body };
    this.events.push(event);
    for (const key of this.growing.keys()) if (key.endsWith(`/${event.item}`)) this.growing.delete(key);
    this.tell(event);
    return event;
  }

  grow(delta, item, content) {
    const key = `${delta}/${item}`;
    const before = this.growing.get(key) ?? "";
    this.growing.set(key, before + content);
    this.tell({ delta, item, offset: Buffer.byteLength(before), content });
  }

  spend(input, output) {
    this.usage = { input: this.usage.input + input, output: this.usage.output + output, cost: this.usage.cost + input * 3e-6 + output * 15e-6 };
    this.observe("server", "usage", "", {
      model: "demo", input_tokens: input, output_tokens: output, cost_usd: 0.01, total_input_tokens: this.usage.input,
      total_output_tokens: this.usage.output, total_cost_usd: this.usage.cost, context_used: 42_000, context_limit: 200_000,
    });
  }

  tell(frame) {
    for (const socket of this.sockets) socket.send(JSON.stringify(frame));
  }
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
