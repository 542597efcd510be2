// The factor A of the Gram matrix of the features, once they have their covariance, and that covariance itself.
#pragma once
#include "chi.hpp"

namespace ridgeformer {
namespace {

struct Features : Chi {
    using Chi::Chi;
    V *A;         // [d][d], of which m columns count
    V *N;         // [d][d]: a matrix in the works
    V *u;         // [d]: a vector in the works
    V *cov;       // of the features, packed
    V *loadings;  // of a factor model, [d][factors]

    // A <- C A for a lower triangle C, from the last row up. C holds vectors or shared scalars; at(i, k) is its index.
    template <class X, class At>
    void multiply(const X *C, const At &at) {
        for (Size i = d; i-- > 0;) {
            if (counter(i).stop(m / 2)) return;
            V *row = A + i * d;
            for (Size j = 0; j < width(i); ++j) row[j] = C[at(i, i)] * row[j];
            for (Size k = 0; k < i; ++k)
                for (Size j = 0; j < width(k); ++j) row[j] += C[at(i, k)] * A[k * d + j];
        }
    }

    // Gives A and cov the covariance that this group's features have.
    void shape_features(Words sequence, V tokens) {
        if (law.covariance == Covariance::fixed && law.factor) multiply(law.factor, [this](Size i, Size k) { return i * d + k; });
        Normals normal{law.key, sequence, Use::features};
        if (law.covariance == Covariance::rotated) rotate(normal);
        if (law.covariance == Covariance::factors) correlate(normal);
        if (law.covariance == Covariance::fixed && law.own_metric)
            for (Size i = 0; i < d; ++i)
                for (Size j = 0; j <= i; ++j) {
                    T sum = T(i == j);
                    if (law.factor) {
                        sum = T(0);
                        for (Size k = 0; k <= j; ++k) sum += law.factor[i * d + k] * law.factor[j * d + k];
                    }
                    cov[packed(i, j)] = splat(sum);
                }
        // Scales with E[scale^2] = 1.
        if (law.spread > T(0)) {
            for (Size i = 0; i < d; ++i) u[i] = exponential(law.spread * normal.next() - law.spread * law.spread);
            scale_features();
        }
        if (!law.standardised) return;
        for (Size i = 0; i < d; ++i) {
            V sum{};
            for (Size k = 0; k < width(i); ++k) sum += A[i * d + k] * A[i * d + k];
            u[i] = square_root(tokens / sum);
        }
        scale_features();
        // A query is centred by its context's mean, whose own covariance is 1/n of the features'.
        const V more = T(1) + T(1) / tokens;
        if (law.own_metric)
            for (Size i = 0; i < packed(d, 0); ++i) cov[i] *= more;
    }

    // Multiplies feature i by u[i].
    void scale_features() {
        for (Size i = 0; i < d; ++i) {
            for (Size k = 0; k < width(i); ++k) A[i * d + k] *= u[i];
            if (law.own_metric)
                for (Size j = 0; j <= i; ++j) cov[packed(i, j)] *= u[i] * u[j];
        }
    }

    // A random basis as a product of Householder reflections (Stewart 1980), applied to diag(roots) A, and from both sides to
    // the spectrum. Signs of the basis do not matter to either.
    void rotate(Normals &normal) {
        for (Size i = 0; i < d; ++i) {
            const T root = law.factor ? law.factor[i] : T(1);
            for (Size j = i + 1; j < m; ++j) A[i * d + j] = V{};
            for (Size j = 0; j < (i < m ? i + 1 : m); ++j) A[i * d + j] *= root;
            if (law.own_metric)
                for (Size j = 0; j <= i; ++j) cov[packed(i, j)] = splat(i == j ? root * root : T(0));
        }
        for (Size k = d - 1; k-- > 0;) {
            if (counter(m + d).stop(2 * (d - k))) return;
            V length{};
            for (Size i = k; i < d; ++i) {
                u[i] = normal.next();
                length += u[i] * u[i];
            }
            const V norm = square_root(length), first = u[k] < T(0) ? u[k] - norm : u[k] + norm;
            const V size = length - u[k] * u[k] + first * first;
            const V beta = T(2) / size;
            u[k] = first;
            for (Size j = 0; j < m; ++j) {
                V sum{};
                for (Size i = k; i < d; ++i) sum += u[i] * A[i * d + j];
                sum *= beta;
                for (Size i = k; i < d; ++i) A[i * d + j] -= u[i] * sum;
            }
            if (law.own_metric) reflect_both(k, beta);
        }
    }

    // cov <- H cov H with H = I - beta u u', in rows and columns from k on; the others of these rows are zero.
    void reflect_both(Size k, V beta) {
        V *p = N, half{};
        for (Size i = k; i < d; ++i) {
            V sum{};
            for (Size j = k; j < d; ++j) sum += cov[i >= j ? packed(i, j) : packed(j, i)] * u[j];
            p[i] = beta * sum;
            half += p[i] * u[i];
        }
        half *= T(0.5) * beta;
        for (Size i = k; i < d; ++i) p[i] -= half * u[i];
        for (Size i = k; i < d; ++i)
            for (Size j = k; j <= i; ++j) cov[packed(i, j)] -= u[i] * p[j] + p[i] * u[j];
    }

    // The correlation matrix of L L' + unique I, where row i of L are the loadings of feature i on the common factors.
    void correlate(Normals &normal) {
        const Size k = law.factors;
        const T scale = T(1) / T(__builtin_sqrt(double(k)));
        for (Size i = 0; i < d; ++i) {
            V sum = splat(law.unique);
            for (Size j = 0; j < k; ++j) {
                loadings[i * k + j] = normal.next() * scale;
                sum += loadings[i * k + j] * loadings[i * k + j];
            }
            const V inverse = T(1) / square_root(sum);
            for (Size j = 0; j < k; ++j) loadings[i * k + j] *= inverse;
            for (Size j = 0; j < i; ++j) cov[packed(i, j)] = dot(loadings + i * k, loadings + j * k, k);
            cov[packed(i, i)] = splat(T(1));
        }
        // Its Cholesky factor.
        for (Size j = 0; j < d; ++j) {
            if (counter(j).stop(d - j)) return;
            V pivot = cov[packed(j, j)];
            for (Size l = 0; l < j; ++l) pivot -= N[j * d + l] * N[j * d + l];
            const V least = splat(sizeof(T) == 4 ? T(1e-7) : T(2e-16));
            const V root = square_root(pivot > least ? pivot : least), inverse = T(1) / root;
            N[j * d + j] = root;
            for (Size i = j + 1; i < d; ++i) {
                V x = cov[packed(i, j)];
                for (Size l = 0; l < j; ++l) x -= N[i * d + l] * N[j * d + l];
                N[i * d + j] = x * inverse;
            }
        }
        multiply(N, [this](Size i, Size l) { return i * d + l; });
    }
};

}  // namespace
}  // namespace ridgeformer
