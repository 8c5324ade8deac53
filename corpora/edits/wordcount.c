#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORD 64
#define BUCKETS 1024

typedef struct entry {
    char word[MAX_WORD];
    int count;
    struct entry *next;
} entry;

static entry *table[BUCKETS];

static unsigned hash(const char *s) {
    unsigned h = 5381;
    while (*s)
        h = h * 33 + (unsigned char)*s++;
    return h % BUCKETS;
}

static void add(const char *word) {
    unsigned h = hash(word);
    for (entry *e = table[h]; e; e = e->next) {
        if (strcmp(e->word, word) == 0) {
            e->count++;
            return;
        }
    }
    entry *e = malloc(sizeof *e);
    strcpy(e->word, word);
    e->count = 1;
    e->next = table[h];
    table[h] = e;
}

static int by_count(const void *a, const void *b) {
    const entry *x = *(const entry *const *)a;
    const entry *y = *(const entry *const *)b;
    return y->count - x->count;
}

int main(void) {
    char word[MAX_WORD];
    int length = 0;
    int c;
    while ((c = getchar()) != EOF) {
        if (isalpha(c)) {
            word[length++] = tolower(c);
        } else if (length > 0) {
            word[length] = '\0';
            add(word);
            length = 0;
        }
    }

    int total = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (entry *e = table[i]; e; e = e->next)
            total++;
    entry **sorted = malloc(total * sizeof *sorted);
    int n = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (entry *e = table[i]; e; e = e->next)
            sorted[n++] = e;
    qsort(sorted, n, sizeof *sorted, by_count);
    for (int i = 0; i < n && i < 20; i++)
        printf("%6d %s\n", sorted[i]->count, sorted[i]->word);
    free(sorted);
    return 0;
}
