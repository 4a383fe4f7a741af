// A session that is on the screen: its line to the server (or to a recording), its state, and what was sent and is not yet
// accepted.

import { batch, signal, type ReadonlySignal } from "@preact/signals";
import { newId } from "../id";
import { loadLater } from "../ondemand";
import { painted } from "../painted";
import type { Decision, Event, Mode } from "../wire/event";
import { isEvent, type ServerFrame, type Status, type Wish } from "../wire/frame";
import { getSession, RequestError, signedOut } from "../wire/rest";
import { tooLong } from "../wire/limit";
import { takeNewest } from "../wire/given";
import { FrameLog } from "../wire/log";
import { SessionSocket, UNREADABLE, type Line, type Listener, type Refusal } from "../wire/socket";
import { learn, moment } from "./list";
import { reduce, type Input } from "./reduce";
import { empty, fateOf, FATES, isOnItsWay, whyUnreadable, type SessionState } from "./session";
import { forgetUnsent, keepUnsent, unsentOf } from "./unsent";

const DOUBLE_CLICK_MS = 1000;

export class LiveSession {
  private readonly held = signal<SessionState>(empty);
  /** When the person pressed Stop, until the server has said what came of it. */
  private readonly stopAskedAt = signal(0);
  /** The newest stop: what came of those before it says nothing about this one. */
  private newestStop = "";
  /** In which connection that was said again last, which was on its way before. */
  private readonly resentIn = { hello: -1, synced: -1 };
  /** Between a connection's open and its `hello`: what is sent then would overtake what waits to be sent again. */
  private isHelloDue = false;
  /** When this connection began: what it says first is newer than all that was told by then. */
  private openedAt = 0;
  /** The raw frames, both ways, for those who want to see them. */
  readonly log = new FrameLog();
  private readonly line: Line;
  private readonly closing = new AbortController();
  /** What has come since the screen opened, while the past is on its way. */
  private readonly since = signal<Input[] | null>(null);
  private readonly pastTrouble = signal("");
  private wasWhole = false;

  constructor(
    readonly id: string,
    connect: (listener: Listener) => Line = (listener) => new SessionSocket(id, listener, this.openWithNewest()),
  ) {
    this.line = connect({
      cursor: () => ({ seq: this.held.peek().lastSeq, at: this.held.peek().lastAt }),
      opened: () => this.open(),
      received: (frames) => this.receive(frames),
      lost: (retryAt) => this.feed([{ local: "lost", retryAt }]),
      refused: (why) => this.refuse(why),
      setBack: () => this.setBack(),
      diagnose: () => this.diagnose(),
    });
  }

  get state(): ReadonlySignal<SessionState> {
    return this.held;
  }

  /** Whether it comes from a file. */
  get isRecorded(): boolean {
    return this.held.peek().connection.phase === "recorded";
  }

  /** Whether all of it has come: what is not on the screen then had not happened. A connection that is lost later changes nothing. */
  get isWhole(): boolean {
    const { phase } = this.held.value.connection;
    const isThere = phase === "live" || phase === "recorded" || whyUnreadable(this.held.value) !== undefined;
    if (this.since.value === null && isThere) this.wasWhole = true;
    return this.wasWhole;
  }

  /** What lies before the first row, while it is on its way: `trouble` says why it has not come. `null` when it is there. */
  get past(): { trouble: string } | null {
    return this.since.value && { trouble: this.pastTrouble.value };
  }

  get stopping(): ReadonlySignal<number> {
    return this.stopAskedAt;
  }

  message(content: string, mode: Mode, attachments: readonly string[] = []): void {
    const args = { content, mode, ...(attachments.length > 0 && { attachments: [...attachments] }) };
    this.wish({ action: "message", args });
  }

  /** A command of the person's own, beside the agent. */
  run(command: string): void {
    this.wish({ action: "run", args: { command } });
  }

  setModel(model: string): void {
    this.wish({ action: "set_model", args: { model } });
  }

  /**
   * Stops what runs. Asked once more, the server goes to harder means; a double click is no second question, nor is one while
   * the first is still here.
   */
  interrupt(): void {
    if (Date.now() - this.stopAskedAt.peek() < DOUBLE_CLICK_MS) return;
    const { connection, sending } = this.held.peek();
    const isAsked = sending.some((sent) => sent.wish.action === "interrupt" && isOnItsWay(sent));
    if (connection.phase !== "live" && isAsked) return;
    this.stopAskedAt.value = Date.now();
    this.newestStop = this.wish({ action: "interrupt" });
  }

  pause(): void {
    this.once({ action: "pause" });
  }

  resume(): void {
    this.once({ action: "resume" });
  }

  /** Frees the sandbox's memory; a message brings it back. */
  stop(): void {
    this.once({ action: "stop" });
  }

  editQueue(item: string, content: string): void {
    this.wish({ action: "edit_queue", args: { item, content } });
  }

  /** A change that was begun before its message left the queue: it is shown as a message that was not sent. */
  missedInQueue(item: string, change: string): void {
    const wish: Wish = { action: "message", args: { content: change, mode: "queue" } };
    this.feed([{ local: "sent", id: newId(), wish, refusal: FATES[fateOf(this.held.peek(), item)] }]);
  }

  removeFromQueue(item: string): void {
    this.once({ action: "edit_queue", args: { item, remove: true } });
  }

  answer(request: string, decision: Decision, reason?: string): void {
    this.wish({ action: "confirm", args: { request, decision, reason } });
  }

  /** Empties the screen, for a recording that begins anew. */
  rewind(): void {
    this.log.clear();
    this.feed([{ local: "rewound" }]);
  }

  /** Sends what was refused once more, as the same wish: the server may have carried it out without a word. */
  again(id: string): void {
    const sent = this.held.peek().sending.find((one) => one.id === id);
    if (sent) this.ask(id, sent.wish);
  }

  /** Forgets a wish that was refused. */
  drop(id: string): void {
    this.feed([{ local: "dropped", id }]);
  }

  retryNow(): void {
    this.line.retryNow();
  }

  close(): void {
    this.closing.abort();
    this.line.close();
  }

  private open(): void {
    this.isHelloDue = true;
    this.openedAt = moment();
    this.feed([{ local: "opened" }]);
  }

  /** The newest events first, so that they are on the screen at once; then what lies before them. */
  private async openWithNewest(): Promise<void> {
    this.feed(unsentOf(this.id).map(({ id, wish, refusal }) => ({ local: "sent", id, wish, refusal })));
    const newest = takeNewest(this.id);
    const events = Array.isArray(newest) ? newest : await newest;
    const after = (events[0]?.seq ?? 1) - 1;
    if (after > 0) {
      this.since.value = [];
      void this.fillIn(after);
    }
    this.receive(events);
    // What is live comes when they are on the screen.
    if (this.held.peek().rows.length > 0) await painted;
  }

  private async fillIn(until: number): Promise<void> {
    await painted;
    const { inOrder, readPast } = await loadLater();
    let past = empty;
    const events: Event[] = [];
    const take = (page: Event[]) => {
      past = reduce(past, page);
      events.push(...page);
    };
    const troubled = (trouble: string) => (this.pastTrouble.value = trouble);
    await readPast(this.id, until, { take, troubled }, this.closing.signal);
    const since = this.since.peek();
    if (this.closing.signal.aborted || !since) return;
    this.log.putBefore(events);
    this.held.value = inOrder(past, since, this.held.peek());
    this.since.value = null;
  }

  private wish(wish: Wish): string {
    const id = newId();
    this.ask(id, wish);
    return id;
  }

  /** Sends now, and again after every reconnect until the server has taken it: the same id never acts twice. */
  private ask(id: string, wish: Wish): void {
    const refusal = tooLong({ ...wish, id }) ?? whyUnreadable(this.held.peek());
    this.feed([{ local: "sent", id, wish, refusal }]);
    if (refusal === undefined) this.send({ ...wish, id });
  }

  /** Unless just that is on its way already: who presses twice means it once. */
  private once(wish: Wish): void {
    const same = JSON.stringify(wish);
    if (!this.held.peek().sending.some((sent) => isOnItsWay(sent) && JSON.stringify(sent.wish) === same)) this.wish(wish);
  }

  /** A stop goes out at once. All else keeps its order: before `hello` it waits for its turn there. */
  private send(wish: Wish & { id: string }): void {
    if (this.isHelloDue && wish.action !== "interrupt") return;
    if (this.line.send(wish)) this.log.add("out", wish, Date.now(), false);
  }

  private receive(frames: ServerFrame[]): void {
    const at = Date.now();
    const replayed = this.held.peek().connection.phase !== "live";
    for (const frame of frames) this.log.add("in", frame, at, replayed);
    this.feed(frames);
    const statuses = frames.filter((frame) => !isEvent(frame) && "status" in frame) as Status[];
    for (const frame of statuses) {
      if (frame.status === "synced") this.resend("synced", (wish) => wish.action === "interrupt");
      if (frame.status !== "hello") continue;
      // The list does not tell of every session: this one as it is now, not as it was when the page came.
      if (frame.session && !this.isRecorded) learn([frame.session], this.openedAt);
      this.isHelloDue = false;
      this.resend("hello", (wish) => wish.action !== "interrupt");
    }
  }

  /**
   * What was on its way when the last connection was cut, once in each: nothing is lost within one. A stop waits until it is known
   * what has come meanwhile: it may have nothing to stop any more.
   */
  private resend(at: "hello" | "synced", which: (wish: Wish) => boolean): void {
    const { connections } = this.held.peek();
    if (this.resentIn[at] === connections) return;
    this.resentIn[at] = connections;
    for (const { id, wish, refusal } of this.held.peek().sending) {
      if (refusal === undefined && which(wish)) this.send({ ...wish, id });
    }
  }

  private feed(inputs: readonly Input[]): void {
    this.since.peek()?.push(...inputs);
    const before = this.held.peek();
    const after = reduce(before, inputs);
    this.held.value = after;
    keepUnsent(this.id, before.sending, after.sending);
    if (this.stopAskedAt.peek() && stopIsAnswered(this.newestStop, before, after, inputs)) this.stopAskedAt.value = 0;
  }

  private refuse(why: Refusal): void {
    if (why === "signed_out") signedOut.value = true;
    if (why === "no_such_session") forgetUnsent(this.id);
    if (why === "unreadable") this.stopAskedAt.value = 0;
    this.feed([{ local: "refused", why }]);
  }

  /** What is on the screen is of a time that the server knows nothing of any more. What a person has written goes out again. */
  private setBack(): void {
    this.wasWhole = false;
    this.log.clear();
    batch(() => {
      // A past that is on its way is of that time as well.
      this.since.value = null;
      this.stopAskedAt.value = 0;
      this.feed([{ local: "set_back" }]);
    });
  }

  private async diagnose(): Promise<Refusal | null> {
    try {
      await getSession(this.id);
      return null;
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      if (error.status === 401) return "signed_out";
      if (error.isNotFound) return "no_such_session";
      if (error.code !== UNREADABLE) return null;
      this.feed([{ error: { code: error.code, message: error.message } }]);
      return "unreadable";
    }
  }
}

/** Also by what has come while it waited for a connection: the reducer takes it back where what it was to stop has ended. */
function stopIsAnswered(stop: string, before: SessionState, after: SessionState, inputs: readonly Input[]): boolean {
  const atWork = (state: SessionState) => state.agentState === "running" || state.agentState === "interrupting";
  const isAnswer = (input: Input) =>
    ("observation" in input && input.observation === "interrupted") || ("error" in input && input.id === stop);
  const isAccepted = inputs.some((input) => "status" in input && input.status === "accepted" && input.id === stop);
  const waited = before.sending.some((sent) => sent.id === stop && isOnItsWay(sent));
  const isWithdrawn = waited && !isAccepted && !after.sending.some((sent) => sent.id === stop);
  return inputs.some(isAnswer) || isWithdrawn || (atWork(before) && !atWork(after));
}
