export interface ClientOptions {
  baseUrl: string;
  token?: string;
  timeoutMs?: number;
}

export class ApiError extends Error {
  constructor(
    public readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

export class ApiClient {
  constructor(private readonly options: ClientOptions) {}

  async getUser(id: string) {
    const response = await fetch(`${this.options.baseUrl}/users/${id}`, {
      headers: { Authorization: `Bearer ${this.options.token}` },
    });
    if (!response.ok) {
      throw new ApiError(response.status, `GET /users/${id} failed`);
    }
    return response.json();
  }

  async getProject(id: string) {
    const response = await fetch(`${this.options.baseUrl}/projects/${id}`, {
      headers: { Authorization: `Bearer ${this.options.token}` },
    });
    if (!response.ok) {
      throw new ApiError(response.status, `GET /projects/${id} failed`);
    }
    return response.json();
  }

  async getInvoice(id: string) {
    const response = await fetch(`${this.options.baseUrl}/invoices/${id}`, {
      headers: { Authorization: `Bearer ${this.options.token}` },
    });
    if (!response.ok) {
      throw new ApiError(response.status, `GET /invoices/${id} failed`);
    }
    return response.json();
  }

  async createProject(name: string, owner: string) {
    const response = await fetch(`${this.options.baseUrl}/projects`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${this.options.token}`,
        "Content-Type": "application/json",
      },
      body: JSON.stringify({ name, owner }),
    });
    if (!response.ok) {
      throw new ApiError(response.status, "POST /projects failed");
    }
    return response.json();
  }
}
