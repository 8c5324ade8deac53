package pool

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
)

// Job is one unit of work.
type Job struct {
	ID  int
	Run func(ctx context.Context) error
}

// Result says how a job ended.
type Result struct {
	JobID int
	Err   error
}

var ErrClosed = errors.New("pool is closed")

// Pool runs jobs on a fixed number of goroutines.
type Pool struct {
	size    int
	jobs    chan Job
	results chan Result
	wg      sync.WaitGroup
	mu      sync.Mutex
	closed  bool
}

func New(size int) *Pool {
	return &Pool{
		size:    size,
		jobs:    make(chan Job),
		results: make(chan Result, size),
	}
}

func (p *Pool) Start(ctx context.Context) {
	for i := 0; i < p.size; i++ {
		p.wg.Add(1)
		go p.work(ctx, i)
	}
}

func (p *Pool) work(ctx context.Context, number int) {
	defer p.wg.Done()
	for job := range p.jobs {
		log.Printf("worker %d: job %d", number, job.ID)
		err := job.Run(ctx)
		if err != nil {
			err = fmt.Errorf("job %d: %w", job.ID, err)
		}
		p.results <- Result{JobID: job.ID, Err: err}
	}
}

func (p *Pool) Submit(ctx context.Context, job Job) error {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return ErrClosed
	}
	p.jobs <- job
	return nil
}

func (p *Pool) Results() <-chan Result {
	return p.results
}

func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	close(p.jobs)
	p.wg.Wait()
	close(p.results)
}
