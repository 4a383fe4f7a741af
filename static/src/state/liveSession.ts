// Session on the screen: its transport (socket or recording), its state, and its pending requests.

import { batch, signal, type ReadonlySignal } from "@preact/signals";
import { syncClock } from "../clock";
import { newId } from "../id";
import { loadLazy } from "../loadLazy";
import { firstPaint } from "../firstPaint";
import type { ApprovalMode, EffortChoice, SessionEvent, MessageMode } from "../wire/event";
import { isEvent, type ServerFrame, type StatusFrame, type ClientRequest } from "../wire/frame";
import { getSession, RestError, signedOut } from "../wire/rest";
import { tooLongError } from "../wire/frameLimit";
import { takeNewestEvents } from "../wire/earlyRequests";
import { FrameLog } from "../wire/frameLog";
import { SessionSocket, UNREADABLE_CODE, type SessionTransport, type TransportListener, type SocketEndReason } from "../wire/socket";
import { mergeSessions, mergeCount } from "./sessionList";
import { reduce, type ReducerInput } from "./reduce";
import { emptyState, queueExitOf, QUEUE_EXIT_TEXTS, isInFlight, unreadableReason, type ScreenState } from "./screenState";
import { forgetSession, storePending, storedRequests } from "./pendingStorage";
import type { TurnRequest } from "./turns";

const DOUBLE_CLICK_MS = 1000;

export class LiveSession {
  private readonly screen = signal<ScreenState>(emptyState);
  /** Time of the pressed Interrupt until the server reports the outcome. 0: none. */
  private readonly interruptRequestedAt = signal(0);
  /** Id of the newest interrupt. Outcomes of earlier ones do not count for it. */
  private newestInterruptId = "";
  /** Connection number of the last resend, for each of the two moments. */
  private readonly resentInConnection = { hello: -1, synced: -1 };
  /** True from open until `hello`. Requests sent in between would overtake the resent ones. */
  private isAwaitingHello = false;
  /** Merge count at the start of this connection. Its `hello` is newer than all merges before. */
  private openedAtMerge = 0;
  /** Raw frames, both ways, for the Events tab. */
  readonly log = new FrameLog();
  private readonly transport: SessionTransport;
  private readonly closing = new AbortController();
  /** Inputs since the screen opened, while earlier events are loading. */
  private readonly inputsSinceOpen = signal<ReducerInput[] | null>(null);
  private readonly earlierProblem = signal("");
  private wasComplete = false;

  constructor(
    readonly id: string,
    connect: (listener: TransportListener) => SessionTransport = (listener) => new SessionSocket(id, listener, this.openWithNewest()),
  ) {
    this.transport = connect({
      cursor: () => ({ seq: this.screen.peek().lastSeq, at: this.screen.peek().lastAt }),
      opened: () => this.opened(),
      received: (frames) => this.receive(frames),
      lost: (retryAt) => this.applyInputs([{ local: "lost", retryAt }]),
      ended: (why) => this.ended(why),
      rolledBack: () => this.rolledBack(),
      diagnose: () => this.diagnose(),
    });
  }

  get state(): ReadonlySignal<ScreenState> {
    return this.screen;
  }

  /** Reports if the session comes from a file. */
  get isRecorded(): boolean {
    return this.screen.peek().connection.phase === "recorded";
  }

  /** Reports if the whole journal has arrived. A later connection loss does not change that. */
  get isComplete(): boolean {
    const { phase } = this.screen.value.connection;
    const isThere = phase === "live" || phase === "recorded" || unreadableReason(this.screen.value) !== undefined;
    if (this.inputsSinceOpen.value === null && isThere) this.wasComplete = true;
    return this.wasComplete;
  }

  /** Loading state of the earlier events, with the error text if loading fails. `null`: loaded. */
  get earlierEvents(): { problem: string } | null {
    return this.inputsSinceOpen.value && { problem: this.earlierProblem.value };
  }

  get interrupting(): ReadonlySignal<number> {
    return this.interruptRequestedAt;
  }

  message(content: string, mode: MessageMode, attachments: readonly string[] = []): void {
    const args = { content, mode, ...(attachments.length > 0 && { attachments: [...attachments] }) };
    this.request({ action: "message", args });
  }

  /** Sends the message of a turn anew. A double press acts once. */
  retry({ text, attachments }: TurnRequest): void {
    const files = attachments.length > 0 ? { attachments: [...attachments] } : {};
    this.requestOnce({ action: "message", args: { content: text, mode: "queue", ...files } });
  }

  /** Runs a command of the user beside the agent. */
  run(command: string): void {
    this.request({ action: "run", args: { command } });
  }

  setModel(model: string): void {
    this.request({ action: "set_model", args: { model } });
  }

  /** Changes the reasoning effort, from the next turn. */
  setEffort(effort: EffortChoice): void {
    this.request({ action: "initialize", args: { effort } });
  }

  /** Changes the budget. `null` removes it. */
  setBudget(usd: number | null): void {
    this.request({ action: "set_budget", args: { usd } });
  }

  /** Ends a process that a command left behind. */
  killProcess(pid: number): void {
    this.request({ action: "kill_process", args: { pid } });
  }

  /**
   * Interrupts the running work. A second call escalates. Ignores a double click, and a repeat
   * while the first request is unsent.
   */
  interrupt(): void {
    if (Date.now() - this.interruptRequestedAt.peek() < DOUBLE_CLICK_MS) return;
    const { connection, pending } = this.screen.peek();
    const isRequested = pending.some((sent) => sent.request.action === "interrupt" && isInFlight(sent));
    if (connection.phase !== "live" && isRequested) return;
    this.interruptRequestedAt.value = Date.now();
    this.newestInterruptId = this.request({ action: "interrupt" });
  }

  pause(): void {
    this.requestOnce({ action: "pause" });
  }

  resume(): void {
    this.requestOnce({ action: "resume" });
  }

  /** Stops the sandbox to free its memory. A message starts it again. */
  stop(): void {
    this.requestOnce({ action: "stop" });
  }

  editQueue(item: string, content: string): void {
    this.request({ action: "edit_queue", args: { item, content } });
  }

  /**
   * Shows an unsaved edit of a queued message as a rejected message, after that message left the
   * queue.
   */
  rejectOrphanedEdit(item: string, change: string): void {
    const request: ClientRequest = { action: "message", args: { content: change, mode: "queue" } };
    this.applyInputs([{ local: "sent", id: newId(), request, rejection: QUEUE_EXIT_TEXTS[queueExitOf(this.screen.peek(), item)] }]);
  }

  removeFromQueue(item: string): void {
    this.requestOnce({ action: "edit_queue", args: { item, remove: true } });
  }

  answerApproval(args: Extract<ClientRequest, { action: "confirm" }>["args"]): void {
    this.requestOnce({ action: "confirm", args });
  }

  /** Changes the mode, and sends a message in the same step. */
  setMode(mode: ApprovalMode, message?: string): void {
    this.requestOnce({ action: "set_mode", args: message === undefined ? { mode } : { mode, message } });
  }

  /** Clears the screen for a recording that starts over. */
  rewind(): void {
    this.log.clear();
    this.applyInputs([{ local: "rewound" }]);
  }

  /** Sends a rejected request again under the same id. The server may already have acted on it. */
  resendRequest(id: string): void {
    const sent = this.screen.peek().pending.find((one) => one.id === id);
    if (sent) this.submit(id, sent.request);
  }

  /** Discards a rejected request. */
  dropRequest(id: string): void {
    this.applyInputs([{ local: "dropped", id }]);
  }

  retryNow(): void {
    this.transport.retryNow();
  }

  close(): void {
    this.closing.abort();
    this.transport.close();
  }

  private opened(): void {
    this.isAwaitingHello = true;
    this.openedAtMerge = mergeCount();
    this.applyInputs([{ local: "opened" }]);
  }

  /** Loads the newest events first, so they are on the screen at once. Earlier events follow. */
  private async openWithNewest(): Promise<void> {
    this.applyInputs(storedRequests(this.id).map(({ id, request, rejection }) => ({ local: "sent", id, request, rejection })));
    const events = await takeNewestEvents(this.id);
    const after = (events[0]?.seq ?? 1) - 1;
    if (after > 0) {
      this.inputsSinceOpen.value = [];
      void this.loadEarlier(after);
    }
    this.receive(events);
    // Live frames wait until these events are drawn.
    if (this.screen.peek().rows.length > 0) await firstPaint;
  }

  private async loadEarlier(until: number): Promise<void> {
    await firstPaint;
    const { mergeEarlier, readEarlierEvents } = await loadLazy();
    let past = emptyState;
    const events: SessionEvent[] = [];
    const take = (page: SessionEvent[]) => {
      past = reduce(past, page);
      events.push(...page);
    };
    const failing = (problem: string) => (this.earlierProblem.value = problem);
    await readEarlierEvents(this.id, until, { take, failing }, this.closing.signal);
    const since = this.inputsSinceOpen.peek();
    if (this.closing.signal.aborted || !since) return;
    this.log.prepend(events);
    this.screen.value = mergeEarlier(past, since, this.screen.peek());
    this.inputsSinceOpen.value = null;
  }

  private request(request: ClientRequest): string {
    const id = newId();
    this.submit(id, request);
    return id;
  }

  /** Sends a request now, and again after each reconnect until accepted. The same id acts once. */
  private submit(id: string, request: ClientRequest): void {
    const rejection = tooLongError({ ...request, id }) ?? unreadableReason(this.screen.peek());
    this.applyInputs([{ local: "sent", id, request, rejection }]);
    if (rejection === undefined) this.send({ ...request, id });
  }

  /** Sends a request unless the same one is in flight. A double press acts once. */
  private requestOnce(request: ClientRequest): void {
    const same = JSON.stringify(request);
    if (!this.screen.peek().pending.some((sent) => isInFlight(sent) && JSON.stringify(sent.request) === same)) this.request(request);
  }

  /** Sends an interrupt at once. Other requests wait for `hello`, which keeps their order. */
  private send(request: ClientRequest & { id: string }): void {
    if (this.isAwaitingHello && request.action !== "interrupt") return;
    if (this.transport.send(request)) this.log.add("out", request, Date.now(), false);
  }

  private receive(frames: ServerFrame[]): void {
    const at = Date.now();
    const replayed = this.screen.peek().connection.phase !== "live";
    for (const frame of frames) this.log.add("in", frame, at, replayed);
    this.applyInputs(frames);
    const statuses = frames.filter((frame) => !isEvent(frame) && "status" in frame) as StatusFrame[];
    for (const frame of statuses) {
      if (frame.status === "synced") this.resend("synced", (request) => request.action === "interrupt");
      if (frame.status !== "hello") continue;
      // The list may lack this session, so `hello` updates it.
      if (frame.session && !this.isRecorded) mergeSessions([frame.session], this.openedAtMerge);
      if (!this.isRecorded) syncClock(frame.now);
      this.isAwaitingHello = false;
      this.resend("hello", (request) => request.action !== "interrupt");
    }
  }

  /**
   * Resends pending requests once per connection. Interrupts wait for `synced`: the replay may show
   * that nothing runs any more.
   */
  private resend(at: "hello" | "synced", filter: (request: ClientRequest) => boolean): void {
    const { connections } = this.screen.peek();
    if (this.resentInConnection[at] === connections) return;
    this.resentInConnection[at] = connections;
    for (const { id, request, rejection } of this.screen.peek().pending) {
      if (rejection === undefined && filter(request)) this.send({ ...request, id });
    }
  }

  private applyInputs(inputs: readonly ReducerInput[]): void {
    this.inputsSinceOpen.peek()?.push(...inputs);
    const before = this.screen.peek();
    const after = reduce(before, inputs);
    this.screen.value = after;
    storePending(this.id, before.pending, after.pending);
    if (this.interruptRequestedAt.peek() && isInterruptAnswered(this.newestInterruptId, before, after, inputs)) this.interruptRequestedAt.value = 0;
  }

  private ended(why: SocketEndReason): void {
    if (why === "signed_out") signedOut.value = true;
    if (why === "no_such_session") forgetSession(this.id);
    if (why === "unreadable") this.interruptRequestedAt.value = 0;
    this.applyInputs([{ local: "refused", why }]);
  }

  /**
   * Discards the screen after a rollback of the server's data. Requests of the user are sent again.
   */
  private rolledBack(): void {
    this.wasComplete = false;
    this.log.clear();
    batch(() => {
      // Earlier events in flight belong to the discarded data as well.
      this.inputsSinceOpen.value = null;
      this.interruptRequestedAt.value = 0;
      this.applyInputs([{ local: "rolled_back" }]);
    });
  }

  private async diagnose(): Promise<SocketEndReason | null> {
    try {
      await getSession(this.id);
      return null;
    } catch (error) {
      if (!(error instanceof RestError)) throw error;
      if (error.status === 401) return "signed_out";
      if (error.isNotFound) return "no_such_session";
      if (error.code !== UNREADABLE_CODE) return null;
      this.applyInputs([{ error: { code: error.code, message: error.message } }]);
      return "unreadable";
    }
  }
}

/**
 * Reports if an interrupt is answered. Also true if the reducer withdrew it because its target
 * ended meanwhile.
 */
function isInterruptAnswered(id: string, before: ScreenState, after: ScreenState, inputs: readonly ReducerInput[]): boolean {
  const atWork = (state: ScreenState) => state.agentState === "running" || state.agentState === "interrupting";
  const isAnswer = (input: ReducerInput) =>
    ("observation" in input && input.observation === "interrupted") || ("error" in input && input.id === id);
  const isAccepted = inputs.some((input) => "status" in input && input.status === "accepted" && input.id === id);
  const waited = before.pending.some((sent) => sent.id === id && isInFlight(sent));
  const isWithdrawn = waited && !isAccepted && !after.pending.some((sent) => sent.id === id);
  return inputs.some(isAnswer) || isWithdrawn || (atWork(before) && !atWork(after));
}
