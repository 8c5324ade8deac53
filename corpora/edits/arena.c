#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN 16

struct block {
	struct block *next;
	size_t size;
	size_t used;
	unsigned char data[];
};

struct arena {
	struct block *blocks;
	size_t block_size;
};

static size_t round_up(size_t n)
{
	return (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
}

void arena_init(struct arena *a, size_t block_size)
{
	a->blocks = NULL;
	a->block_size = block_size;
}

static struct block *new_block(struct arena *a, size_t size)
{
	struct block *b;

	if (size < a->block_size)
		size = a->block_size;
	b = malloc(sizeof(*b) + size);
	b->next = a->blocks;
	b->size = size;
	b->used = 0;
	a->blocks = b;
	return b;
}

void *arena_alloc(struct arena *a, size_t n)
{
	struct block *b = a->blocks;
	void *p;

	n = round_up(n);
	if (b == NULL || b->size - b->used < n)
		b = new_block(a, n);
	p = b->data + b->used;
	b->used += n;
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	size_t n = strlen(s);
	char *copy = arena_alloc(a, n);

	memcpy(copy, s, n);
	return copy;
}

void arena_reset(struct arena *a)
{
	struct block *b;

	for (b = a->blocks; b != NULL; b = b->next)
		b->used = 0;
}

void arena_free(struct arena *a)
{
	struct block *b = a->blocks;

	while (b != NULL) {
		struct block *next = b->next;
		free(b);
		b = next;
	}
	a->blocks = NULL;
}
