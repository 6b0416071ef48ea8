// Reads server-sent events from text in pieces: each call returns the data of the events that are
// complete. Comments and other fields are dropped, as the format says.
export class SseReader {
  #rest = '';
  #data = [];

  feed(text) {
    const events = [];
    this.#rest += text;
    for (;;) {
      const end = this.#rest.search(/\r\n|\n|\r(?=[^\n])/);
      if (end < 0) return events;
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + (this.#rest.startsWith('\r\n', end) ? 2 : 1));
      if (line === '') {
        if (this.#data.length > 0) events.push(this.#data.join('\n'));
        this.#data = [];
      } else if (line.startsWith('data:')) {
        this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
      }
    }
  }
}
