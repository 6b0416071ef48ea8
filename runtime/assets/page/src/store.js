// Conversations in the browser's IndexedDB: whole ones, and beside them a summary each for the list.
// Where the browser keeps nothing they live as long as the page (`kept` says which).

const DATABASE = 'bloomery';
const VERSION = 1;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const summaryOf = ({ id, title, updated }) => ({ id, title, updated });
const byTime = (summaries) => summaries.sort((a, b) => b.updated - a.updated);

class BrowserStore {
  kept = true;
  #database;

  constructor(database) { this.#database = database; }

  async list() {
    return byTime(await done(this.#database.transaction('summaries').objectStore('summaries').getAll()));
  }
  async get(id) {
    return await done(this.#database.transaction('conversations').objectStore('conversations').get(id)) ?? null;
  }
  async all() {
    return done(this.#database.transaction('conversations').objectStore('conversations').getAll());
  }
  #write(act) {
    const transaction = this.#database.transaction(['conversations', 'summaries'], 'readwrite');
    act(transaction.objectStore('conversations'), transaction.objectStore('summaries'));
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error ?? new Error('the browser gave up writing'));
    });
  }
  put(conversations) {
    return this.#write((whole, summaries) => {
      for (const conversation of conversations) {
        whole.put(conversation);
        summaries.put(summaryOf(conversation));
      }
    });
  }
  remove(id) {
    return this.#write((whole, summaries) => {
      whole.delete(id);
      summaries.delete(id);
    });
  }
  clear() {
    return this.#write((whole, summaries) => {
      whole.clear();
      summaries.clear();
    });
  }
}

class PageStore {
  kept = false;
  #conversations = new Map();

  async list() { return byTime([...this.#conversations.values()].map(summaryOf)); }
  async get(id) { return this.#conversations.get(id) ?? null; }
  async all() { return [...this.#conversations.values()]; }
  async put(conversations) { for (const c of conversations) this.#conversations.set(c.id, c); }
  async remove(id) { this.#conversations.delete(id); }
  async clear() { this.#conversations.clear(); }
}

export async function openStore() {
  try {
    const opening = indexedDB.open(DATABASE, VERSION);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore('conversations', { keyPath: 'id' });
      opening.result.createObjectStore('summaries', { keyPath: 'id' });
    };
    return new BrowserStore(await done(opening));
  } catch {
    return new PageStore();
  }
}
