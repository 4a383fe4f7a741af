// Generated from agent/protocol. Renew with `cargo xtask wire`.

/**
 * Recorded action of an event: `"action"` holds its name, `"args"` holds the rest.
 *
 * The agent's tool calls and the records of user requests share this type. The event's `source`
 * distinguishes them.
 */
export type Action = { "action": "start", "args": { task: string, } } | { "action": "message", "args": { content: string, mode?: MessageMode, attachments?: Array<string>, } } | { "action": "run", "args": { command: string, } } | { "action": "read", "args": { path: string, } } | { "action": "write", "args": { path: string, content: string, } } | { "action": "edit", "args": { path: string, } & ({ "change": "REPLACE", lines: Array<string>, line?: number, end_line?: number, old?: string, } | { "change": "INSERT", lines: Array<string>, line?: number, end_line?: number, old?: string, } | { "change": "DELETE", line?: number, end_line?: number, old?: string, }) } | { "action": "browse", "args": { url: string, } } | { "action": "tool", "args": { kind: ToolKind, 
/**
 * Call in words, for a person.
 */
title: string, 
/**
 * Name by which the agent knows the tool.
 */
name?: string, input?: JsonValue, locations?: Array<ToolLocation>, } } | { "action": "think", "args": { content: string, } } | { "action": "plan", "args": { content: string, } } | { "action": "finish", "args": { message?: string, } } | { "action": "confirm", "args": { request: string, decision: ApprovalDecision, reason?: string, 
/**
 * Id of the choice that the person made.
 */
choice?: string, 
/**
 * Arguments that replace those of the tool call.
 */
input?: JsonValue, } } | { "action": "set_mode", "args": { mode: ApprovalMode, } } | { "action": "set_model", "args": { model: string, effort?: ReasoningEffort, } } | { "action": "set_budget", "args": { usd: number | null, } } | { "action": "kill_process", "args": { pid: number, } } | { "action": "interrupt", "args": Record<symbol, never> } | { "action": "pause", "args": Record<symbol, never> } | { "action": "resume", "args": Record<symbol, never> } | { "action": "stop", "args": Record<symbol, never> } | { "action": "end", "args": Record<symbol, never> };

/**
 * State of the agent, as clients see it.
 */
export type AgentState = "starting" | "idle" | "running" | "awaiting_confirmation" | "interrupting" | "paused" | "stopped" | "failed" | "ended";

/**
 * Choice of a person about an approval request.
 */
export type ApprovalChoice = { 
/**
 * Value of `choice` in the client request `confirm`.
 */
id: string, 
/**
 * Text for a person.
 */
name: string, kind: ApprovalChoiceKind, };

/**
 * Kind of a choice.
 */
export type ApprovalChoiceKind = "allow_once" | "allow_always" | "reject_once" | "reject_always";

/**
 * Person's answer to an approval request.
 */
export type ApprovalDecision = "allow" | "allow_always" | "deny";

/**
 * Mode of a session: the calls that run without a person's decision.
 */
export type ApprovalMode = "plan" | "ask" | "edits" | "auto";

/**
 * Changed file with the counts of its lines.
 */
export type ChangedFile = { path: string, 
/**
 * True if `path` is percent-encoded.
 */
encoded?: boolean, change: FileChangeKind, 
/**
 * Old path of a moved file, percent-encoded if `encoded` is set.
 */
from?: string, 
/**
 * Added lines. Absent for a binary file.
 */
added?: number, 
/**
 * Removed lines. Absent for a binary file.
 */
removed?: number, };

/**
 * Cause of a checkpoint.
 */
export type CheckpointKind = "start" | "turn" | "restore" | "before_restore";

/**
 * Client request: `"action"` holds its name, `"args"` holds the rest.
 */
export type ClientRequest = { "action": "initialize", "args": { model?: string, directory?: string, agent_cls?: string, image?: string, title?: string, effort?: EffortChoice, mode?: ApprovalMode, 
/**
 * Name of the security analyzer.
 */
analyzer?: string, 
/**
 * Repository to clone: an `https` address, or a path below one of `workspace.sources`.
 */
repo?: string, 
/**
 * Branch, tag or commit of `repo`. Default: its default branch.
 */
ref?: string, } } | { "action": "start", "args": { task: string, } } | { "action": "message", "args": { content: string, mode?: MessageMode, attachments?: Array<string>, } } | { "action": "run", "args": { command: string, } } | { "action": "read", "args": { path: string, } } | { "action": "write", "args": { path: string, content: string, } } | { "action": "browse", "args": { url: string, } } | { "action": "interrupt", "args": Record<symbol, never> } | { "action": "pause", "args": Record<symbol, never> } | { "action": "resume", "args": Record<symbol, never> } | { "action": "stop", "args": Record<symbol, never> } | { "action": "end", "args": Record<symbol, never> } | { "action": "confirm", "args": { request: string, decision: ApprovalDecision, reason?: string, 
/**
 * Id of one of the request's choices. Absent: the first choice of `decision`'s kind.
 */
choice?: string, 
/**
 * Arguments that replace those of the tool call, if the request is editable.
 */
input?: JsonValue, } } | { "action": "set_mode", "args": { mode: ApprovalMode, message?: string, } } | { "action": "edit_queue", "args": { item: string, content?: string, remove?: boolean, } } | { "action": "set_model", "args": { model: string, } } | { "action": "set_budget", "args": { usd: number | null, } } | { "action": "kill_process", "args": { pid: number, } } | { "action": "ping", "args": Record<symbol, never> };

/**
 * Phase of a clone.
 */
export type ClonePhase = "cloning" | "cloned" | "failed";

/**
 * Party that decided about an approval request or a reviewed call.
 */
export type DecidedBy = "person" | "policy";

/**
 * Next piece of an item. Exactly one durable event with the same `item` ends the item, and holds
 * the whole text.
 */
export type Delta = { delta: DeltaKind, item: string, 
/**
 * Start of `content` within the item, in bytes of UTF-8. 0 discards all earlier content.
 */
offset: number, content: string, };

/**
 * Kind of text that grows.
 */
export type DeltaKind = "text" | "thinking" | "tool_input" | "output";

/**
 * Kind of change that an edit made.
 */
export type EditKind = "INSERT" | "DELETE" | "REPLACE";

/**
 * Reasoning effort that a client chooses for a session.
 */
export type EffortChoice = "default" | "minimal" | "low" | "medium" | "high";

/**
 * Body of every error, on the socket and in REST.
 */
export type ErrorBody = { 
/**
 * Stable code, for programs.
 */
code: string, 
/**
 * Text for a person. Names the thing and the way out.
 */
message: string, };

/**
 * Error about one frame or about the connection. Never journalled.
 */
export type ErrorFrame = { error: ErrorBody, 
/**
 * Text of the error, in the place where all frames have their line for a person.
 */
message?: string, id?: string, };

/**
 * Steps of an interrupt's escalation, in ascending order.
 */
export type EscalationStep = "cancel" | "kill_processes" | "restart_agent" | "sandbox";

/**
 * Origin of an event.
 */
export type EventSource = "user" | "agent" | "server";

/**
 * Kind of change to a file.
 */
export type FileChangeKind = "created" | "modified" | "deleted" | "moved";

/**
 * Point of another session at which a session began.
 */
export type ForkOrigin = { 
/**
 * Id of the session that was forked.
 */
from: string, 
/**
 * Number of the newest event that both sessions have.
 */
at: number, 
/**
 * Checkpoint of `from`, or of a session that `from` was forked from, whose files the workspace
 * began with. `now`: the files of `from` at the time of the fork. Absent: no files.
 */
checkpoint?: string, };

export type JsonValue = number | string | boolean | Array<JsonValue> | { [key in string]: JsonValue } | null;

/**
 * Entry of the workspace that a checkpoint does not contain. A directory stands for its content.
 */
export type LeftOutEntry = { path: string, 
/**
 * True if `path` is percent-encoded.
 */
encoded?: boolean, reason: LeftOutReason, };

/**
 * Reason why a checkpoint does not contain an entry.
 */
export type LeftOutReason = "ignored" | "too_large" | "special" | "unreadable" | "limit";

/**
 * Process that goes on after the command that started it has ended.
 */
export type LeftoverProcess = { pid: number, 
/**
 * Command line, abbreviated.
 */
name: string, 
/**
 * Time since its start, in seconds.
 */
age_s: number, 
/**
 * Resident memory.
 */
memory_bytes: number, };

/**
 * Time at which a message reaches an agent that is working.
 */
export type MessageMode = "queue" | "steer" | "interrupt";

/**
 * Usage of one model call, and totals of the session so far.
 */
export type ModelUsage = { model: string, input_tokens: number, output_tokens: number, cache_read_tokens?: number, cache_write_tokens?: number, 
/**
 * Cost of this call in US dollars. `null` if the model's price is unknown.
 */
cost_usd: number | null, total_input_tokens: number, total_output_tokens: number, 
/**
 * Total cost in US dollars. `null` if the price of any call so far is unknown.
 */
total_cost_usd: number | null, 
/**
 * Tokens of the model's context that the last call used.
 */
context_used: number, 
/**
 * Size of the model's context, in tokens. `null` if unknown.
 */
context_limit: number | null, 
/**
 * True if counts of this call are estimates, because the provider did not report them.
 */
estimated?: boolean, };

/**
 * Kind of observation: `"observation"` holds its name, `"extras"` holds the rest.
 */
export type ObservationKind = { "observation": "run", "extras": { command: string, exit_code?: number, signal?: string, duration_ms: number, timed_out?: boolean, truncated?: TruncationMark, } } | { "observation": "read", "extras": { path: string, truncated?: TruncationMark, } } | { "observation": "write", "extras": { path: string, bytes: number, } } | { "observation": "edit", "extras": { path: string, line: number, change: EditKind, lines: Array<string>, diff: string, } } | { "observation": "browse", "extras": { 
/**
 * Address after all redirects.
 */
url: string, title?: string, 
/**
 * Path on this server that returns a picture of the page. Set by the server.
 */
screenshot?: string, 
/**
 * Path on this server that returns the page's HTML, as scripts left it. Set by the server.
 */
html?: string, 
/**
 * Errors of the page, oldest first, and notes about its dialogs and new tabs.
 */
console?: Array<string>, 
/**
 * True if the page was fetched without a browser, so that none of its scripts ran.
 */
plain?: boolean, truncated?: TruncationMark, } } | { "observation": "tool", "extras": { kind: ToolKind, 
/**
 * Call in words, for a person.
 */
title: string, 
/**
 * Name by which the agent knows the tool.
 */
name?: string, status: ToolStatus, changes?: Array<ToolFileChange>, locations?: Array<ToolLocation>, truncated?: TruncationMark, } } | { "observation": "chat", "extras": { attachments?: Array<string>, 
/**
 * Turn that the message began or joined.
 */
turn?: string, } } | { "observation": "message", "extras": { partial?: boolean, } } | { "observation": "think", "extras": { partial?: boolean, } } | { "observation": "plan", "extras": { path: string, items: Array<PlanItem>, } } | { "observation": "compaction", "extras": { 
/**
 * Bytes of conversation that the summary replaces.
 */
dropped_bytes: number, 
/**
 * Number of newest messages of the model's conversation that stay as they were.
 */
kept: number, } } | { "observation": "commands", "extras": { items: Array<LeftoverProcess>, 
/**
 * Number of further processes, which `items` leaves out.
 */
more?: number, } } | { "observation": "confirm", "extras": { request: string, 
/**
 * Work that needs the decision, in words.
 */
action: string, 
/**
 * Set by the server.
 */
risk?: RiskAssessment, options: Array<ApprovalDecision>, 
/**
 * Choices with their names, set by the server. Absent in events of earlier versions.
 */
choices?: Array<ApprovalChoice>, 
/**
 * Rule, mode or analyzer that asked, in words. Set by the server.
 */
asked_by?: string, 
/**
 * Tool call that runs if it is allowed. Long texts are abbreviated.
 */
call?: object, 
/**
 * True if a person may change the arguments of `call` before allowing it.
 */
editable?: boolean, 
/**
 * Unified diff of the change that the call would make.
 */
diff?: string, } } | { "observation": "confirmed", "extras": { request: string, decision: ApprovalDecision, 
/**
 * Absent in events of earlier versions.
 */
by?: DecidedBy, 
/**
 * Browser or token of the person, or the part of the policy that decided.
 */
who?: string, reason?: string, 
/**
 * Rule that the decision added, in words.
 */
rule?: string, 
/**
 * True if the person changed the arguments of the call.
 */
edited?: boolean, 
/**
 * True if the request ended without a decision. `decision` is then `deny`.
 */
withdrawn?: boolean, } } | { "observation": "usage", "extras": ModelUsage } | { "observation": "agent_state_changed", "extras": { agent_state: AgentState, reason?: string, 
/**
 * Start of the state, or of the reported change within the state: RFC 3339.
 */
since: string, 
/**
 * The state is unchanged, but the agent's turn is over. A user action still runs, or the
 * agent was just paused.
 */
turn_over?: boolean, } } | { "observation": "interrupted", "extras": { 
/**
 * Stopped work, in words (`the command cargo test`).
 */
what: string, 
/**
 * Time from the request to the end of the last process, in milliseconds.
 */
stopped_ms: number, 
/**
 * Escalation step that ended the work.
 */
rung: EscalationStep, 
/**
 * True if a partial text was kept.
 */
partial: boolean, } } | { "observation": "queue", "extras": { items: Array<QueueItem>, } } | { "observation": "sandbox", "extras": { phase: SandboxPhase, exit_code?: number, 
/**
 * True if the memory limit ended the sandbox.
 */
out_of_memory?: boolean, stderr_tail?: string, 
/**
 * Driver, and what its isolation does and does not cover, in words.
 */
isolation?: string, } } | { "observation": "checkpoint", "extras": WorkspaceCheckpoint } | { "observation": "changes", "extras": WorkspaceChanges } | { "observation": "forked", "extras": ForkOrigin } | { "observation": "repository", "extras": RepositoryClone } | { "observation": "pushed", "extras": { 
/**
 * Address of the repository, without credentials.
 */
url: string, 
/**
 * Branch in the repository.
 */
branch: string, 
/**
 * Newest pushed commit.
 */
commit: string, } } | { "observation": "error", "extras": { code: string, detail: string, } } | { "observation": "notice", "extras": { code: string, detail: string, 
/**
 * Attempts of the model call, for the code `provider_retried`.
 */
attempts?: number, 
/**
 * Sum of the waits between the attempts, in milliseconds.
 */
waited_ms?: number, } };

/**
 * Line of a plan with a checkbox.
 */
export type PlanItem = { text: string, done: boolean, 
/**
 * Absent in events of earlier versions.
 */
state?: PlanItemState, };

/**
 * State of one step of a plan.
 */
export type PlanItemState = "pending" | "in_progress" | "completed";

/**
 * Message that waits in the queue.
 */
export type QueueItem = { 
/**
 * Id of the message in `edit_queue`.
 */
item: string, content: string, attachments?: Array<string>, };

/**
 * Effort that a model spends on its thinking.
 */
export type ReasoningEffort = "minimal" | "low" | "medium" | "high";

/**
 * Progress of a clone into the workspace.
 */
export type RepositoryClone = { phase: ClonePhase, 
/**
 * Address or path of the repository, without credentials.
 */
url: string, 
/**
 * Requested branch, tag or commit. Absent: the repository's default branch.
 */
ref?: string, 
/**
 * Commit that the workspace began with, once cloned.
 */
commit?: string, 
/**
 * Branch of the session, once cloned.
 */
branch?: string, 
/**
 * Reason of a failure, for a person.
 */
detail?: string, };

/**
 * Wait of a model call for its next attempt, from the server alone. A client that attaches during
 * the wait receives the newest frame of the session.
 *
 * A durable event ends the wait: `notice` with the code `provider_retried`, or the error that ends
 * the turn.
 */
export type RetryFrame = { delta: RetryFrameKind, 
/**
 * Number of the call. Frames of one call have growing attempts.
 */
call: number, 
/**
 * Provider's name, for a person.
 */
provider: string, 
/**
 * Number of the coming attempt, so the first retry is 2.
 */
attempt: number, max_attempts: number, 
/**
 * Wait before the attempt, in milliseconds.
 */
wait_ms: number, 
/**
 * Failure of the last attempt, for a person.
 */
why: string, };

/**
 * Name of [`RetryFrame`] on the wire.
 */
export type RetryFrameKind = "retry";

/**
 * Judgement of a security analyzer about one tool call.
 */
export type RiskAssessment = { level: RiskLevel, 
/**
 * Reasons in words, most important first. At most [`REASONS_LIMIT`], each of at most
 * [`REASON_LIMIT`] bytes.
 */
reasons?: Array<string>, 
/**
 * Name of the analyzer. Empty in events of earlier versions.
 */
analyzer?: string, };

/**
 * Possible harm of a tool call.
 */
export type RiskLevel = "low" | "medium" | "high";

/**
 * Phase of a sandbox.
 */
export type SandboxPhase = "pulling" | "creating" | "starting" | "connecting" | "ready" | "paused" | "stopped" | "lost" | "failed";

/**
 * Status frame about this connection alone. `session` is the session as REST shows it.
 */
export type StatusFrame = { "status": "hello", session: JsonValue | null, last_seq: number, state: AgentState | null, 
/**
 * Time on the server's clock: RFC 3339, UTC, milliseconds. Ages of events count on that
 * clock.
 */
now: string, } | { "status": "synced", seq: number, } | { "status": "accepted", id: string, seq?: number, } | { "status": "pong", } | { "status": "closing", reason: string, };

/**
 * Change that a generic tool call made to one file.
 */
export type ToolFileChange = { path: string, change?: FileChangeKind, 
/**
 * Unified diff.
 */
diff?: string, 
/**
 * Number of added lines.
 */
added?: number, 
/**
 * Number of removed lines.
 */
removed?: number, };

/**
 * Kind of a generic tool call, for icon and policy.
 */
export type ToolKind = "read" | "edit" | "delete" | "move" | "search" | "execute" | "think" | "fetch" | "switch_mode" | "other";

/**
 * File that a generic tool call works on, and the line, counted from 1.
 */
export type ToolLocation = { path: string, line?: number, };

/**
 * End of a generic tool call.
 */
export type ToolStatus = "completed" | "failed" | "stopped";

/**
 * Marks `content` as a part of a longer text, and points at the whole text.
 *
 * Stored in `extras.truncated` of any kind. Kinds that an agent can shorten have a field for the
 * mark. [`Observation::with_truncation`] adds the mark to any kind.
 */
export type TruncationMark = { 
/**
 * Size of the whole text, in bytes.
 */
bytes: number, 
/**
 * Path on this server that returns the whole text. Absent if the whole text was not stored.
 */
href?: string, };

/**
 * Difference between a checkpoint and the one before it.
 */
export type WorkspaceChanges = { checkpoint: string, 
/**
 * Checkpoint before it.
 */
since: string, 
/**
 * Changed files, in the order of their paths.
 */
files: Array<ChangedFile>, 
/**
 * Number of further changed files, which `files` does not list.
 */
more?: number, 
/**
 * Added lines of the listed files.
 */
added: number, 
/**
 * Removed lines of the listed files.
 */
removed: number, };

/**
 * Captured workspace.
 */
export type WorkspaceCheckpoint = { 
/**
 * Id of the checkpoint. For the end of a turn, the turn's id.
 */
checkpoint: string, kind: CheckpointKind, 
/**
 * Checkpoint that a restore went back to.
 */
of?: string, 
/**
 * Number of captured files.
 */
files: number, 
/**
 * Size of the captured files.
 */
bytes: number, 
/**
 * The capture took longer than 2 s, or a server died during it. Later changes may be part of
 * it.
 */
partial?: boolean, 
/**
 * Entries of the workspace that are not part of the checkpoint.
 */
left_out?: Array<LeftOutEntry>, 
/**
 * Number of further such entries, which `left_out` does not list.
 */
left_out_more?: number, };
