// The end of what grows, kept in sight for as long as the reader is there, and not a moment longer.

/** In pixels. Browsers round what is scrolled: what is no more than this is no move, and no distance. */
const ROUNDING = 1;

/** Of one box that scrolls. */
export class Following {
  private on = true;
  /** Where the box was when it was last looked at. */
  private placed = 0;
  private size = "";

  /** `near`: who comes so near to the end, in pixels, is there again. */
  constructor(private readonly near: number) {}

  /** Whether the reader is at the end. */
  get isOn(): boolean {
    return this.on;
  }

  /** The reader has scrolled, or unfolded something. A move upwards is a leave, however small; one downwards may be a return. */
  look(box: HTMLElement): void {
    if (this.isResized(box)) this.settle(box);
    const moved = box.scrollTop - this.placed;
    const distance = distanceToEnd(box);
    // What has become shorter is scrolled to its very end by the browser: that was not the reader.
    if (distance < ROUNDING) this.turn(box, true);
    else if (distance >= this.near || moved < -ROUNDING) this.turn(box, false);
    else if (moved > ROUNDING) this.turn(box, true);
    // Else a slow move would be none in each of its frames.
    if (Math.abs(moved) > ROUNDING) this.placed = box.scrollTop;
  }

  /** More was drawn: its end comes in sight, unless the reader has left in this frame, whose scroll event is still to come. */
  follow(box: HTMLElement): void {
    const isLeft = box.scrollTop < this.placed - ROUNDING && distanceToEnd(box) >= ROUNDING;
    if (isLeft && !this.isResized(box)) this.on = false;
    this.settle(box);
  }

  /** It was laid out anew, as for another width: wherever the browser has scrolled it for that, the reader is where they were. */
  settle(box: HTMLElement): void {
    this.turn(box, this.on);
    if (this.on) box.scrollTop = box.scrollHeight;
    this.placed = box.scrollTop;
    this.size = sizeOf(box);
  }

  /** The reader wants to stay with what is in sight. */
  leave(box: HTMLElement): void {
    this.turn(box, false);
  }

  comeBack(box: HTMLElement): void {
    this.on = true;
    this.settle(box);
  }

  private isResized(box: HTMLElement): boolean {
    return this.size !== sizeOf(box);
  }

  /** At the end the browser, which would keep in place what leaves at the top, would seem to be a reader who scrolls up. */
  private turn(box: HTMLElement, on: boolean): void {
    this.on = on;
    box.style.setProperty("overflow-anchor", on ? "none" : "auto");
  }
}

function distanceToEnd(box: HTMLElement): number {
  return box.scrollHeight - box.scrollTop - box.clientHeight;
}

function sizeOf(box: HTMLElement): string {
  return `${box.clientWidth}×${box.clientHeight}`;
}
