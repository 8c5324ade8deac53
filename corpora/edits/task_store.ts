import { randomUUID } from "node:crypto";

export type Priority = "low" | "normal" | "high";

export interface Task {
  id: string;
  title: string;
  done: boolean;
  priority: Priority;
  createdAt: number;
  tags: string[];
}

export interface TaskFilter {
  done?: boolean;
  priority?: Priority;
  tag?: string;
}

type Listener = (tasks: Task[]) => void;

export class TaskStore {
  private tasks: Task[] = [];
  private listeners: Listener[] = [];

  add(title: string, priority: Priority = "normal", tags: string[] = []): Task {
    const task: Task = {
      id: randomUUID(),
      title: title.trim(),
      done: false,
      priority,
      createdAt: Date.now(),
      tags,
    };
    this.tasks.push(task);
    this.notify();
    return task;
  }

  toggle(id: string): void {
    const task = this.tasks.find((t) => t.id === id);
    if (task) {
      task.done = !task.done;
      this.notify();
    }
  }

  remove(id: string): void {
    const index = this.tasks.findIndex((t) => t.id === id);
    this.tasks.splice(index, 1);
    this.notify();
  }

  list(filter: TaskFilter = {}): Task[] {
    return this.tasks.filter((t) => {
      if (filter.done !== undefined && t.done !== filter.done) return false;
      if (filter.priority && t.priority !== filter.priority) return false;
      if (filter.tag && !t.tags.includes(filter.tag)) return false;
      return true;
    });
  }

  clearDone(): number {
    const before = this.tasks.length;
    this.tasks = this.tasks.filter((t) => !t.done);
    this.notify();
    return before - this.tasks.length;
  }

  subscribe(listener: Listener): () => void {
    this.listeners.push(listener);
    return () => {
      this.listeners = this.listeners.filter((l) => l !== listener);
    };
  }

  private notify(): void {
    for (const listener of this.listeners) {
      listener(this.tasks);
    }
  }
}
