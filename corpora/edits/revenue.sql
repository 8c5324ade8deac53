SELECT
    r.name AS region,
    SUM(CASE WHEN o.placed_on BETWEEN '2023-01-01' AND '2023-03-31' THEN o.total ELSE 0 END) AS q1,
    SUM(CASE WHEN o.placed_on BETWEEN '2023-04-01' AND '2023-06-30' THEN o.total ELSE 0 END) AS q2,
    SUM(CASE WHEN o.placed_on BETWEEN '2023-07-01' AND '2023-09-30' THEN o.total ELSE 0 END) AS q3,
    SUM(CASE WHEN o.placed_on BETWEEN '2023-10-01' AND '2023-12-31' THEN o.total ELSE 0 END) AS q4
FROM orders o
JOIN customers c ON c.id = o.customer_id
JOIN regions r ON r.id = c.region_id
WHERE o.status = 'paid'
GROUP BY r.name
ORDER BY r.name;

SELECT
    p.category,
    COUNT(DISTINCT o.id) AS orders,
    SUM(i.quantity) AS units,
    SUM(i.quantity * i.unit_price) AS revenue
FROM order_items i
JOIN orders o ON o.id = i.order_id
JOIN products p ON p.id = i.product_id
WHERE o.status = 'paid'
  AND o.placed_on BETWEEN '2023-01-01' AND '2023-12-31'
GROUP BY p.category
ORDER BY revenue DESC;
